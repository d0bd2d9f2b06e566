package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// Module is what the module of a port measures. All is unset for copper, and for a module of an unknown kind.
type Module struct {
	Temperature *float64  // degrees Celsius; nil: not reported
	Receive     []float64 // optical power in watts by lane, 0 in the dark; nil: not reported
	Transmit    []float64 // optical power of the lasers by lane; nil: not reported
}

// readPage reads a part of a module's memory. An answer has the requested length.
type readPage func(i2c, page byte, offset, length uint32) ([]byte, error)

// From include/uapi/linux/ethtool_netlink_generated.h; golang.org/x/sys/unix lacks them.
const (
	attrModuleOffset  = 2
	attrModuleLength  = 3
	attrModulePage    = 4
	attrModuleAddress = 6
	attrModuleData    = 7
)

// Addresses on a module's I2C bus, and the size of a page.
const (
	addressMemory      = 0x50
	addressDiagnostics = 0x51 // SFP only
	pageSize           = 128
)

// ReadModule reads a module by ethtool netlink (net/ethtool/eeprom.c, Linux 5.13), which takes several firmware
// commands. It needs CAP_NET_ADMIN. The error is EOPNOTSUPP if the driver or the kernel lacks the request.
func ReadModule(name string) (Module, error) {
	conn, err := dial()
	if err != nil {
		return Module{}, err
	}
	defer conn.Close()
	return decodeModule(func(i2c, page byte, offset, length uint32) ([]byte, error) {
		return readModulePage(conn, name, i2c, page, offset, length)
	})
}

func readModulePage(conn *netlink.Conn, name string, i2c, page byte, offset, length uint32) (data []byte, err error) {
	err = query(conn, name, unix.ETHTOOL_MSG_MODULE_EEPROM_GET, 0, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrModuleOffset, offset)
		ae.Uint32(attrModuleLength, length)
		ae.Uint8(attrModulePage, page)
		ae.Uint8(attrModuleAddress, i2c)
	}, func(reply []byte) (err error) {
		data = nlattr.Last(reply, attrModuleData, &err)
		return err
	})
	if err == nil && len(data) != int(length) {
		err = nlattr.ErrSize
	}
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: it needs CAP_NET_ADMIN", err)
	}
	if err != nil {
		return nil, fmt.Errorf("ethtool netlink page %d of the module of %s: %w", page, name, err)
	}
	return data, nil
}

// decodeModule reads a module after its kind (SFF-8024, table 4-1).
func decodeModule(read readPage) (Module, error) {
	low, err := read(addressMemory, 0, 0, pageSize)
	if err != nil {
		return Module{}, err
	}
	switch low[0] {
	case 0x03: // SFP
		return decodeSFP(low, read)
	case 0x0c, 0x0d, 0x11: // QSFP, QSFP+, QSFP28
		return decodeQSFP(low, read)
	case 0x18, 0x19, 0x1b, 0x1e, 0x1f, 0x20: // QSFP-DD, OSFP, DSFP; QSFP, SFP-DD and SFP with CMIS
		return decodeCMIS(low, read)
	}
	return Module{}, nil
}

// decodeSFP reads the diagnostics after SFF-8472, unless the host would have to calibrate them.
func decodeSFP(low []byte, read readPage) (m Module, err error) {
	const implemented, calibrated, copper = 1 << 6, 1 << 5, 0x0c
	if low[92]&implemented == 0 || low[92]&calibrated == 0 || low[8]&copper != 0 {
		return m, nil
	}
	diagnostics, err := read(addressDiagnostics, 0, 0, pageSize)
	if err != nil {
		return m, err
	}
	m.Temperature = celsius(diagnostics[96:])
	m.Transmit, m.Receive = powers(diagnostics[102:], 1), powers(diagnostics[104:], 1)
	return m, nil
}

// decodeQSFP reads the monitors after SFF-8636.
func decodeQSFP(low []byte, read readPage) (m Module, err error) {
	const lanes, firstCopper, transmits = 4, 0xa, 1 << 2
	high, err := read(addressMemory, 0, pageSize, pageSize)
	if err != nil || high[147-pageSize]>>4 >= firstCopper {
		return m, err
	}
	m.Temperature, m.Receive = celsius(low[22:]), powers(low[34:], lanes)
	if high[220-pageSize]&transmits != 0 {
		m.Transmit = powers(low[50:], lanes)
	}
	return m, nil
}

// decodeCMIS reads the monitors of bank 0 after the Common Management Interface Specification 5.2.
func decodeCMIS(low []byte, read readPage) (m Module, err error) {
	const flat, copper, most = 1 << 7, 3, 8
	const temperature, transmits, receives = 1 << 0, 1 << 1, 1 << 2
	if low[2]&flat != 0 || low[85] == copper {
		return m, nil
	}
	advertised, err := read(addressMemory, 1, pageSize, pageSize)
	if err != nil {
		return m, err
	}
	if advertised[159-pageSize]&temperature != 0 {
		m.Temperature = celsius(low[14:])
	}
	has := advertised[160-pageSize]
	if has&(transmits|receives) == 0 {
		return m, nil
	}
	monitors, err := read(addressMemory, 0x11, pageSize, pageSize)
	if err != nil {
		return m, err
	}
	// The first application: lanes of the medium, and where its instances may start.
	lanes := int(low[88]&0x0f) * bits.OnesCount8(low[89])
	if lanes == 0 || lanes > most {
		lanes = most
	}
	if has&transmits != 0 {
		m.Transmit = powers(monitors[154-pageSize:], lanes)
	}
	if has&receives != 0 {
		m.Receive = powers(monitors[186-pageSize:], lanes)
	}
	return m, nil
}

// celsius converts a signed number of 1/256 of a degree.
func celsius(b []byte) *float64 {
	return new(float64(int16(binary.BigEndian.Uint16(b))) / 256)
}

// powers converts numbers of 0.1 microwatts.
func powers(b []byte, lanes int) (watts []float64) {
	for lane := range lanes {
		watts = append(watts, float64(binary.BigEndian.Uint16(b[2*lane:]))/1e7)
	}
	return watts
}
