package collector

import (
	"bytes"
	"fmt"

	"github.com/railscope/railscope/internal/sysfs"
)

// The sides of a LACP link, and the values of the side label.
const (
	sideActor   = iota // we
	sidePartner        // the switch
	sides
)

var bondSides = [sides]string{"actor", "partner"}

// Bounds of what is taken from /proc/net/bonding/<bond>. A LACP member takes
// about 700 bytes there.
const (
	maxBondProc    = 128 << 10
	maxBondMembers = 128
)

// bondProcMember is what only /proc/net/bonding tells of a member, and what
// older kernels tell nowhere else.
type bondProcMember struct {
	name  string
	churn [sides]procNumber // times that the side did not come into step in time
	state [sides]procNumber // port state bits; only with CAP_NET_ADMIN
}

type procNumber struct {
	value uint64
	ok    bool
}

// parseBondProc reads the member sections of /proc/net/bonding/<bond> as
// bond_info_show_slave() of drivers/net/bonding/bond_procfs.c prints them.
// Lines it does not know are left alone: the format grows. A number it cannot
// read is left out and told in errs, [*sysfs.Error] each.
func parseBondProc(b []byte) (members []bondProcMember, errs []error) {
	var m *bondProcMember // the section we are in
	side := -1            // of the "details ... lacp pdu" lines below it
	for line := range bytes.Lines(b) {
		key, value, found := bytes.Cut(line, []byte(":"))
		if !found {
			continue
		}
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		if string(key) == "Slave Interface" {
			m, side = nil, -1
			if len(members) == maxBondMembers {
				return members, append(errs, &sysfs.Error{Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("more than %d members", maxBondMembers)})
			}
			if validNetdev(string(value)) {
				members = append(members, bondProcMember{name: string(value)})
				m = &members[len(members)-1]
			}
			continue
		}
		if m == nil {
			continue
		}
		var to *procNumber
		switch string(key) {
		case "details actor lacp pdu":
			side = sideActor
		case "details partner lacp pdu":
			side = sidePartner
		case "Actor Churned Count":
			to = &m.churn[sideActor]
		case "Partner Churned Count":
			to = &m.churn[sidePartner]
		case "port state":
			if side >= 0 {
				to = &m.state[side]
			}
		}
		if to == nil {
			continue
		}
		v, err := sysfs.ParseUint(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", m.name, key, err))
			continue
		}
		*to = procNumber{v, true}
	}
	return members, errs
}

// validNetdev reports whether name can be the name of a netdev, by the rules of
// dev_valid_name() in net/core/dev.c, so that it can be part of a path.
func validNetdev(name string) bool {
	if name == "" || len(name) > 15 || name == "." || name == ".." {
		return false
	}
	for _, c := range []byte(name) {
		if c == '/' || c == ':' || c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}
