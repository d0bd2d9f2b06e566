package collector

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// counts emits what every member says, and how many of them are up: nothing
// where one could not be read, because a count that leaves it out would be a
// false alarm.
func (s *bondState) counts() {
	up, all := 0, true
	for _, m := range s.members {
		s.carrier(m)
		if err := m.find(s); err != nil {
			s.fail(err)
			all = false
			continue
		}
		switch isUp, ok := s.memberUp(m); {
		case !ok:
			all = false
		case isUp:
			up++
		}
		s.number(bondMemberFailures, m, fileMemberFailures)
		s.memberActive(m)
	}
	if all {
		s.out.add(s.row(bondMembersUp), s.labels, float64(up))
	}
}

// carrier emits the member's own carrier. An interface that is
// administratively down answers EINVAL, which is no failure.
func (s *bondState) carrier(m *bondMember) {
	if _, err := m.netdev.check(); err != nil {
		s.fail(err)
		return
	}
	v, ok, err := m.netdev.uint(0, s.buf)
	switch {
	case errors.Is(err, unix.EINVAL):
	case err == nil && v > 1:
		s.fail(m.netdev.bad(0, fmt.Append(nil, v), "neither 0 nor 1"))
	case err != nil:
		s.fail(err)
	case ok:
		s.out.add(s.row(bondMemberCarrier), m.labels, float64(v))
	}
}

// memberUp emits whether the bond holds the member to be up. Only "up" counts:
// a link on its way down or back carries nothing new (bond_slave_link_status()
// in include/net/bonding.h).
func (s *bondState) memberUp(m *bondMember) (up, ok bool) {
	b, err := m.dir.read(fileMemberStatus, s.buf)
	if err == nil && b == nil {
		err = sysfs.Fail(m.dir.files[fileMemberStatus].Path, unix.ENOENT)
	}
	if err != nil {
		s.fail(err)
		return false, false
	}
	word := bytes.TrimSpace(b)
	switch string(word) {
	case "up":
		up = true
	case "down", "going down", "going back":
	default:
		s.fail(m.dir.bad(fileMemberStatus, word, "no link status"))
		return false, false
	}
	s.out.add(s.row(bondMemberUp), m.labels, Bool(up))
	return up, true
}

func (s *bondState) memberActive(m *bondMember) {
	b, err := m.dir.read(fileMemberState, s.buf)
	if b == nil || err != nil {
		s.fail(err)
		return
	}
	word := bytes.TrimSpace(b)
	switch string(word) {
	case "active", "backup":
		s.out.add(s.row(bondMemberActive), m.labels, Bool(string(word) == "active"))
	default:
		s.fail(m.dir.bad(fileMemberState, word, "neither active nor backup"))
	}
}

// number emits one file of a member as a number.
func (s *bondState) number(row int, m *bondMember, file int) {
	if v, ok := s.memberUint(m, file); ok {
		s.out.add(s.row(row), m.labels, float64(v))
	}
}

// memberUint reads one file of a member as a number. LACP's files read N/A
// while the member is in no aggregator: absent, and no fault.
func (s *bondState) memberUint(m *bondMember, file int) (v uint64, ok bool) {
	b, err := m.dir.read(file, s.buf)
	if b == nil || err != nil {
		s.fail(err)
		return 0, false
	}
	if file >= fileMemberAggregator && string(bytes.TrimSpace(b)) == "N/A" {
		return 0, false
	}
	v, err = sysfs.ParseUint(b)
	if err != nil {
		s.fail(sysfs.At(m.dir.files[file].Path, err))
		return 0, false
	}
	return v, true
}

// lacpMembers emits what 802.3ad knows of each member.
func (s *bondState) lacpMembers() {
	told := s.readProc()
	for _, m := range s.members {
		var proc bondProcMember
		for _, p := range told {
			if p.name == m.name {
				proc = p
				break
			}
		}
		for side, n := range proc.churn {
			if n.ok {
				s.out.add(s.row(bondMemberChurned), m.churned[side], float64(n.value))
			}
		}
		if m.dir == nil {
			continue // told by counts
		}
		s.number(bondMemberAggregator, m, fileMemberAggregator)
		for side, file := range [sides]int{fileMemberActorState, fileMemberPartnerState} {
			v, ok := s.memberUint(m, file)
			if !ok && !m.dir.files[file].seen { // Linux before 4.1 has it in /proc alone
				v, ok = proc.state[side].value, proc.state[side].ok
			}
			if ok && v > 0xff {
				s.fail(m.dir.bad(file, fmt.Append(nil, v), "no LACP port state"))
				continue
			}
			for bit := 0; ok && bit < len(bondPortStates); bit++ {
				s.out.add(s.row(bondMemberPortState), m.state[side][bit], float64(v>>bit&1))
			}
		}
	}
}

// readProc reads /proc/net/bonding/<bond>. It being absent is expected where
// procfs is of another network namespace, but churn then goes unseen, so it is
// told.
func (s *bondState) readProc() []bondProcMember {
	if s.procBuf == nil {
		s.procBuf = make([]byte, 8<<10)
	}
	b, err := sysfs.ReadSeq(s.proc, s.procBuf)
	for sysfs.Reason(err) == sysfs.ReasonTooLarge && err != nil && len(s.procBuf) < maxBondProc {
		s.procBuf = make([]byte, 2*len(s.procBuf))
		b, err = sysfs.ReadSeq(s.proc, s.procBuf)
	}
	if err != nil {
		f := NewFault(s.name, err)
		f.Expected = f.Expected || errors.Is(err, os.ErrNotExist)
		s.out.faults = append(s.out.faults, f)
		return nil
	}
	members, errs := parseBondProc(b)
	for _, err := range errs {
		s.fail(fmt.Errorf("read %s: %w", s.proc, err))
	}
	return members
}

// aggregator emits the active aggregator. The driver prints 0 where there is
// none, and hides keys and partner from whoever lacks CAP_NET_ADMIN by an empty
// file.
func (s *bondState) aggregator() {
	id, idOK := s.lacpUint(fileAggregator)
	if idOK && id > 0 {
		s.out.add(s.row(bondAggregator), s.labels, float64(id))
		if v, ok := s.lacpUint(fileActorKey); ok {
			s.out.add(s.row(bondActorKey), s.labels, float64(v))
		}
		if v, ok := s.lacpUint(filePartnerKey); ok {
			s.out.add(s.row(bondPartnerKey), s.labels, float64(v))
		}
	}
	if v, ok := s.lacpUint(filePorts); ok {
		s.out.add(s.row(bondAggregatorPorts), s.labels, float64(v))
	}
	word, ok := s.word(filePartnerMAC)
	switch {
	case !ok || !idOK:
	case id == 0:
		s.out.add(s.row(bondPartnerPresent), s.labels, 0)
	case len(word) == 0: // hidden
	case !validMAC(word):
		s.fail(s.dir.bad(filePartnerMAC, word, "no MAC address"))
	case string(word) == "00:00:00:00:00:00":
		s.out.add(s.row(bondPartnerPresent), s.labels, 0)
	default:
		s.out.add(s.row(bondPartnerPresent), s.labels, 1)
		if s.partner == nil || s.partner[1] != string(word) {
			s.partner = []string{s.name, string(word)}
		}
		s.out.add(s.row(bondPartner), s.partner, 1)
	}
}

// lacpUint reads one of the bond's LACP files; an empty one is absent.
func (s *bondState) lacpUint(file int) (v uint64, ok bool) {
	word, ok := s.word(file)
	if !ok || len(word) == 0 {
		return 0, false
	}
	v, err := sysfs.ParseUint(word)
	if err != nil {
		s.fail(sysfs.At(s.dir.files[file].Path, err))
		return 0, false
	}
	return v, true
}

// validMAC reports whether b is six bytes as the kernel's %pM prints them.
func validMAC(b []byte) bool {
	if len(b) != 17 {
		return false
	}
	for i, c := range b {
		if i%3 == 2 {
			if c != ':' {
				return false
			}
		} else if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}
