package bond

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// Bounds of what is taken from /proc/net/bonding/<bond>. A LACP member takes
// about 700 bytes there.
const (
	maxProc    = 128 << 10
	maxMembers = 128
)

// procMember is what only /proc/net/bonding says of a member, and what older
// kernels say nowhere else.
type procMember struct {
	name  string
	churn [sides]procNumber // times that the side did not come into step in time
	state [sides]procNumber // port state bits; only with CAP_NET_ADMIN
}

type procNumber struct {
	value uint64
	ok    bool
}

// parseProc reads the member sections of /proc/net/bonding/<bond> as
// bond_info_show_slave() of drivers/net/bonding/bond_procfs.c prints them.
// Lines it does not know are left alone: the format grows. A number it cannot
// read is left out, and an error in errs, [*sysfs.Error] each.
func parseProc(b []byte) (members []procMember, errs []error) {
	var m *procMember // the section we are in
	side := -1        // of the "details ... lacp pdu" lines below it
	for line := range bytes.Lines(b) {
		key, value, found := bytes.Cut(line, []byte(":"))
		if !found {
			continue
		}
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		if string(key) == "Slave Interface" {
			m, side = nil, -1
			if len(members) == maxMembers {
				err := fmt.Errorf("more than %d members", maxMembers)
				return members, append(errs, &sysfs.Error{Reason: sysfs.ReasonTooLarge, Err: err})
			}
			if sysfs.ValidNetdev(string(value)) {
				members = append(members, procMember{name: string(value)})
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
			side = actor
		case "details partner lacp pdu":
			side = partner
		case "Actor Churned Count":
			to = &m.churn[actor]
		case "Partner Churned Count":
			to = &m.churn[partner]
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

// readProc reads /proc/net/bonding/<bond>. It being absent is expected where
// procfs is of another network namespace, but churn then goes unseen, so it is a
// fault.
func (b *bond) readProc(r *collector.Reading) {
	if b.procBuf == nil {
		b.procBuf = make([]byte, 8<<10)
	}
	text, err := sysfs.ReadSeq(b.proc, b.procBuf)
	for err != nil && sysfs.Reason(err) == sysfs.ReasonTooLarge && len(b.procBuf) < maxProc {
		b.procBuf = make([]byte, 2*len(b.procBuf))
		text, err = sysfs.ReadSeq(b.proc, b.procBuf)
	}
	if err != nil {
		f := collector.NewFault(b.name, err)
		f.Expected = f.Expected || errors.Is(err, os.ErrNotExist)
		r.Fault(f)
		text = nil
	}
	found, errs := parseProc(text)
	for _, err := range errs {
		r.Fail(fmt.Errorf("read %s: %w", b.proc, err))
	}
	for _, m := range b.members {
		m.inProc = procMember{}
		if i := slices.IndexFunc(found, func(p procMember) bool { return p.name == m.name }); i >= 0 {
			m.inProc = found[i]
		}
	}
}
