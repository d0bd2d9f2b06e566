package facts

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
)

// From include/uapi/linux/dcbnl.h; golang.org/x/sys/unix has only RTM_GETDCB.
const (
	dcbCmdIEEEGet  = 21
	dcbAttrIfname  = 1
	dcbAttrIEEE    = 13
	dcbAttrIEEEPFC = 2
	dcbHead        = 4             // struct dcbmsg: family, command, padding
	dcbPFCSize     = 8 + 8*8 + 8*8 // struct ieee_pfc: pfc_cap, pfc_en, mbc, delay, then 2 × 8 u64
	dcbWait        = time.Second   // for the kernel's reply, which comes at once or never
	pauseParam     = 0x12          // ETHTOOL_GPAUSEPARAM
	pauseSize      = 4 * 4         // struct ethtool_pauseparam: cmd, autoneg, rx_pause, tx_pause
)

// kernelPFC queries for which priorities an interface has PFC enabled, as `dcb pfc show` does. A driver without DCB
// fails with EOPNOTSUPP. The netlink library of the routes does not support DCB.
func kernelPFC(netdev string) (enabled uint8, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err == nil {
		defer conn.Close()
		err = conn.SetDeadline(time.Now().Add(dcbWait))
	}
	if err == nil {
		enabled, err = queryPFC(conn, netdev)
	}
	if err != nil {
		err = fmt.Errorf("query PFC of %s: %w", netdev, err)
	}
	return enabled, err
}

// queryPFC sends one DCB_CMD_IEEE_GET (dcbnl_ieee_get in net/dcb/dcbnl.c), which needs no privilege.
func queryPFC(conn *netlink.Conn, netdev string) (uint8, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(dcbAttrIfname, netdev)
	attrs, err := ae.Encode()
	if err != nil {
		return 0, err
	}
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request},
		Data: append([]byte{unix.AF_UNSPEC, dcbCmdIEEEGet, 0, 0}, attrs...)})
	if err != nil {
		return 0, err
	}
	for _, m := range replies {
		if enabled, err := decodePFC(m.Data, netdev); err == nil {
			return enabled, nil
		}
	}
	return 0, unix.EOPNOTSUPP // it has DCB, but not PFC
}

// decodePFC returns pfc_en of a reply about netdev.
func decodePFC(data []byte, netdev string) (enabled uint8, err error) {
	if len(data) < dcbHead || data[1] != dcbCmdIEEEGet {
		return 0, fmt.Errorf("%d bytes are not a DCB reply", len(data))
	}
	ad, err := netlink.NewAttributeDecoder(data[dcbHead:])
	if err != nil {
		return 0, err
	}
	name, found := "", false
	for ad.Next() {
		switch ad.Type() {
		case dcbAttrIfname:
			name = ad.String()
		case dcbAttrIEEE:
			ad.Nested(func(ieee *netlink.AttributeDecoder) error {
				for ieee.Next() {
					// The kernel's struct may grow at its end.
					if b := ieee.Bytes(); ieee.Type() == dcbAttrIEEEPFC && len(b) >= dcbPFCSize {
						enabled, found = b[1], true
					}
				}
				return nil
			})
		}
	}
	switch {
	case ad.Err() != nil:
		return 0, ad.Err()
	case name != netdev:
		return 0, fmt.Errorf("the reply is about %q", clean(name))
	case !found:
		return 0, fmt.Errorf("%s has no PFC: %w", netdev, unix.EOPNOTSUPP)
	}
	return enabled, nil
}

// readPause reads the global pause frames of an interface (`ethtool -a`).
func readPause(ioctl ethtool.Ioctl, netdev string) (rx, tx bool, err error) {
	request := make([]byte, pauseSize)
	binary.NativeEndian.PutUint32(request, pauseParam)
	if err := ioctl(netdev, request); err != nil {
		return false, false, fmt.Errorf("ethtool pause of %s: %w", netdev, err)
	}
	return binary.NativeEndian.Uint32(request[8:]) != 0, binary.NativeEndian.Uint32(request[12:]) != 0, nil
}

// kernelPause reads whether an interface honors and sends global pause frames.
func kernelPause(netdev string) (rx, tx bool, err error) {
	socket, err := ethtool.Open()
	if err != nil {
		return false, false, err
	}
	defer socket.Close() //nolint:errcheck // nothing was written to it
	return readPause(socket.Ioctl, netdev)
}
