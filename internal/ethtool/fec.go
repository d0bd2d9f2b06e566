package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// FECMode returns the active mode of forward error correction: off, auto, rs, baser or llrs; none if the port has
// no modes, "" while it is unknown. On mlx5 it is a firmware command. The error is EOPNOTSUPP if the driver does
// not report it.
func (d *Device) FECMode() (string, error) {
	req := d.request() // struct ethtool_fecparam: cmd, active_fec, fec, reserved
	clear(req[:16])
	binary.NativeEndian.PutUint32(req, unix.ETHTOOL_GFECPARAM)
	if err := d.do("FEC", req); err != nil {
		return "", err
	}
	modes := [...]string{"none", "auto", "off", "rs", "baser", "llrs"} // enum ethtool_fec_config_bits
	active := binary.NativeEndian.Uint32(req[4:])
	if i := bits.TrailingZeros32(active); i < len(modes) && active == 1<<i {
		return modes[i], nil
	}
	return "", nil
}

// From include/uapi/linux/ethtool_netlink_generated.h (Linux 6.18); golang.org/x/sys/unix lacks them.
const (
	attrHeader           = 1
	attrFECStats         = 5
	attrFECCorrected     = 2
	attrFECUncorrectable = 3
	attrFECBits          = 4
	attrFECBin           = 5 // one attribute for each bin
	attrBinLow           = 2
	attrBinHigh          = 3
	attrBinCodewords     = 4
	attrBinLanes         = 5
)

// Bounds of an answer, of which the kernel has half at most (ETHTOOL_FEC_HIST_MAX, ETHTOOL_MAX_LANES).
const (
	maxFECBins  = 64
	maxFECLanes = 16
)

// FEC is what forward error correction counted since the driver was loaded. A field is nil if it is not reported.
type FEC struct {
	Corrected     *uint64  // blocks (codewords) with errors, all of them corrected
	Uncorrectable *uint64  // blocks with too many errors
	Bits          *uint64  // corrected bits
	Bins          []FECBin // codewords by their number of errors, in ascending order, from Linux 6.18
}

// FECBin is the number of codewords with a number of symbol errors from Low to High.
type FECBin struct {
	Low, High uint32
	Codewords uint64
	Lanes     []uint64 // codewords of each lane; nil if they are not reported
}

// ReadFEC asks the kernel by ethtool netlink (net/ethtool/fec.c); mlx5 needs several firmware commands. The error is
// EOPNOTSUPP or EINVAL if the driver has no FEC, or the kernel lacks the request, as before Linux 5.13.
func ReadFEC(name string) (FEC, error) {
	conn, err := dial()
	if err != nil {
		return FEC{}, err
	}
	defer conn.Close()
	return readFEC(conn, name)
}

func readFEC(conn *netlink.Conn, name string) (f FEC, err error) {
	err = query(conn, name, unix.ETHTOOL_MSG_FEC_GET, unix.ETHTOOL_FLAG_STATS, nil, f.decode)
	if err != nil {
		return FEC{}, fmt.Errorf("ethtool netlink FEC of %s: %w", name, err)
	}
	return f, nil
}

func (f *FEC) decode(data []byte) (err error) {
	stats := nlattr.Last(data, attrFECStats, &err)
	for typ, value := range nlattr.All(stats, &err) {
		switch typ {
		case attrFECCorrected:
			f.Corrected = total(value)
		case attrFECUncorrectable:
			f.Uncorrectable = total(value)
		case attrFECBits:
			f.Bits = total(value)
		case attrFECBin:
			if len(f.Bins) == maxFECBins {
				return nlattr.ErrSize
			}
			bin, err := decodeBin(value)
			if err != nil {
				return err
			}
			f.Bins = append(f.Bins, bin)
		}
	}
	return err
}

// total returns the first number of an array of the total and the value of each lane, nil for an empty one, which is
// not reported.
func total(value []byte) *uint64 {
	if len(value) < 8 {
		return nil
	}
	return new(binary.NativeEndian.Uint64(value))
}

func decodeBin(data []byte) (b FECBin, err error) {
	b.Low = uint32(nlattr.Uint(nlattr.Last(data, attrBinLow, &err), &err))
	b.High = uint32(nlattr.Uint(nlattr.Last(data, attrBinHigh, &err), &err))
	b.Codewords = nlattr.Uint(nlattr.Last(data, attrBinCodewords, &err), &err)
	lanes := nlattr.Last(data, attrBinLanes, &err)
	if err == nil && (len(lanes)%8 != 0 || len(lanes) > 8*maxFECLanes || b.High < b.Low) {
		err = nlattr.ErrSize
	}
	if err != nil {
		return FECBin{}, err
	}
	for lane := range slices.Chunk(lanes, 8) {
		b.Lanes = append(b.Lanes, binary.NativeEndian.Uint64(lane))
	}
	return b, nil
}

// dial opens a socket for ethtool netlink.
func dial() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool netlink: %w", err)
	}
	return conn, nil
}

// query sends one request about an interface, with more attributes unless encode is nil. The error is EOPNOTSUPP if the
// family does not exist.
func query(conn *netlink.Conn, name string, cmd byte, flags uint32, encode func(*netlink.AttributeEncoder),
	decode func(data []byte) error) error {
	family, err := familyID(conn)
	if err == nil {
		err = generic(conn, family, cmd, func(ae *netlink.AttributeEncoder) {
			ae.Nested(attrHeader, func(header *netlink.AttributeEncoder) error {
				header.String(unix.ETHTOOL_A_HEADER_DEV_NAME, name)
				if flags != 0 {
					header.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, flags)
				}
				return nil
			})
			if encode != nil {
				encode(ae)
			}
		}, decode)
	}
	if errors.Is(err, unix.ENOENT) {
		return unix.EOPNOTSUPP
	}
	return err
}

// familyID returns the kernel's number of the ethtool netlink family.
func familyID(conn *netlink.Conn) (id netlink.HeaderType, err error) {
	err = generic(conn, unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.CTRL_ATTR_FAMILY_NAME, unix.ETHTOOL_GENL_NAME)
	}, func(data []byte) (err error) {
		value := nlattr.Last(data, unix.CTRL_ATTR_FAMILY_ID, &err)
		if len(value) != 2 {
			return errors.Join(err, nlattr.ErrSize)
		}
		id = netlink.HeaderType(binary.NativeEndian.Uint16(value))
		return err
	})
	return id, err
}

// generic sends one generic netlink request. The kernel answers before the send returns.
func generic(conn *netlink.Conn, family netlink.HeaderType, cmd byte, encode func(*netlink.AttributeEncoder),
	decode func(data []byte) error) error {
	ae := netlink.NewAttributeEncoder()
	encode(ae)
	data, err := ae.Encode()
	if err != nil {
		return err
	}
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: family, Flags: netlink.Request},
		Data: append([]byte{cmd, 1, 0, 0}, data...)}) // struct genlmsghdr: cmd, version, reserved
	if err != nil {
		return err
	}
	for _, m := range replies {
		if len(m.Data) < unix.GENL_HDRLEN {
			return nlattr.ErrSize
		}
		if err := decode(m.Data[unix.GENL_HDRLEN:]); err != nil {
			return err
		}
	}
	return nil
}
