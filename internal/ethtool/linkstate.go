package ethtool

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// linkReason is a reason why a link is down, with the names of its details, from 1 on.
type linkReason struct {
	text    string
	details []string
}

// linkReasons are enum ethtool_link_ext_state and its substates, by number (include/uapi/linux/ethtool.h, Linux 6.12).
func linkReasons() []linkReason {
	return []linkReason{
		{"autonegotiation failed", []string{"no partner was detected", "the partner did not acknowledge",
			"the exchange of next pages failed", "no partner was detected in forced mode",
			"FEC modes of the ends do not match", "the ends have no common mode"}},
		{"link training failed", []string{"frame lock was not acquired", "it took too long",
			"the partner's receiver did not become ready", "the partner reports a fault"}},
		{"the ends do not understand each other", []string{"no block lock", "no alignment marker lock",
			"the lanes were not aligned", "FEC (FC) is not locked", "FEC (RS) is not locked"}},
		{"the signal is bad", []string{"many physical errors", "the partner's rate is not supported",
			"the reference clock was lost", "no analog signal arrives"}},
		{"there is no cable", nil},
		{"the cable is faulty", []string{"it is not supported", "it failed its test"}},
		{"the EEPROM of the cable or module cannot be read", nil},
		{"calibration failed", nil},
		{"the module needs more power than the port may give", nil},
		{"the module is too hot", nil},
		{"the module is not ready", []string{"it has not left its low-power state"}},
	}
}

// ReadLinkReason asks the driver why an interface has no link, by ethtool netlink (net/ethtool/linkstate.c, Linux 5.9).
// The reason is empty where the driver does not report one. The error is EOPNOTSUPP if the kernel lacks the request.
func ReadLinkReason(name string) (string, error) {
	conn, err := dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return readLinkReason(conn, name)
}

func readLinkReason(conn *netlink.Conn, name string) (reason string, err error) {
	err = query(conn, name, unix.ETHTOOL_MSG_LINKSTATE_GET, 0, nil, func(data []byte) (err error) {
		state := nlattr.Last(data, unix.ETHTOOL_A_LINKSTATE_EXT_STATE, &err)
		detail := nlattr.Last(data, unix.ETHTOOL_A_LINKSTATE_EXT_SUBSTATE, &err)
		if err != nil || len(state) != 1 {
			return err
		}
		all := linkReasons()
		if int(state[0]) >= len(all) {
			reason = fmt.Sprintf("the driver's reason has the number %d", state[0])
			return nil
		}
		of := all[state[0]]
		reason = of.text
		if len(detail) == 1 && detail[0] > 0 && int(detail[0]) <= len(of.details) {
			reason += ": " + of.details[detail[0]-1]
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("ethtool netlink link state of %s: %w", name, err)
	}
	return reason, nil
}
