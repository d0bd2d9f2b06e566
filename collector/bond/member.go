package bond

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// The sides of a LACP link.
const (
	actor   = iota // we
	partner        // the switch
	sides
)

// sideNames are the values of the side label.
func sideNames() [sides]string { return [sides]string{"actor", "partner"} }

// portStates are the bits of a LACP port state, lowest first (IEEE 802.1AX,
// LACP_STATE_* in include/net/bond_3ad.h).
func portStates() [8]string {
	return [8]string{"activity", "timeout", "aggregation", "synchronization", "collecting", "distributing",
		"defaulted", "expired"}
}

// member is an interface that is enslaved to a bond.
type member struct {
	name string

	carrier                 sysfs.Attr
	found                   bool // where the following are
	status, failures, state sysfs.Attr
	aggregator              sysfs.Attr
	portState               [sides]sysfs.Attr
	inProc                  procMember // as last read
	labels                  []string
	churnLabels             [sides][]string
	portStateLabels         [sides][8][]string
}

func newMember(b *bond, name string) *member {
	m := &member{name: name, labels: []string{b.name, name}}
	m.carrier.Path = filepath.Join(b.net, name, "carrier")
	for side, text := range sideNames() {
		m.churnLabels[side] = []string{b.name, name, text}
		for bit, state := range portStates() {
			m.portStateLabels[side][bit] = []string{b.name, name, text, state}
		}
	}
	return m
}

// files are the files of the bonding_slave directory, by name.
func (m *member) files() map[string]*sysfs.Attr {
	return map[string]*sysfs.Attr{"mii_status": &m.status, "link_failure_count": &m.failures, "state": &m.state,
		"ad_aggregator_id": &m.aggregator, "ad_actor_oper_port_state": &m.portState[actor],
		"ad_partner_oper_port_state": &m.portState[partner]}
}

func (m *member) close() {
	m.carrier.Close()
	for _, f := range m.files() {
		f.Close()
	}
}

// find looks for the member's bonding_slave directory. It is below the member
// itself; the ways around by the bond's links are for captured trees that have
// only those, lower_ as of Linux 3.18, slave_ before.
func (m *member) find(b *bond) error {
	if m.found {
		return nil
	}
	var first error
	for _, dir := range [...]string{filepath.Join(b.net, m.name),
		filepath.Join(b.net, b.name, "lower_"+m.name), filepath.Join(b.net, b.name, "slave_"+m.name)} {
		dir = filepath.Join(dir, "bonding_slave")
		_, err := sysfs.Inode(dir)
		if err == nil {
			for name, f := range m.files() {
				f.Path = filepath.Join(dir, name)
			}
			m.found = true
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// readMembers emits what every member says, and how many of them are up: nothing
// where one could not be read, because a count that leaves it out would be a
// false alarm.
func (b *bond) readMembers(r *collector.Reading) {
	up, all := 0, true
	for _, m := range b.members {
		if carrier, ok, err := m.carrier.Carrier(r.Time); err != nil {
			r.Fail(err)
		} else if ok {
			r.Add(b.table.memberCarrier, m.labels, collector.Bool(carrier))
		}
		if err := m.find(b); err != nil {
			r.Fail(err)
			all = false
			continue
		}
		switch isUp, ok := b.readLink(r, m); {
		case !ok:
			all = false
		case isUp:
			up++
		}
		if v, ok := b.memberNumber(r, &m.failures); ok {
			r.Add(b.table.memberFailures, m.labels, float64(v))
		}
		b.readActive(r, m)
	}
	if all {
		r.Add(b.table.membersUp, b.labels, float64(up))
	}
}

// readLink emits whether the bond holds the member to be up. Only "up" counts: a
// link on its way down or back carries nothing new (bond_slave_link_status() in
// include/net/bonding.h).
func (b *bond) readLink(r *collector.Reading, m *member) (up, ok bool) {
	text, err := m.status.Read(b.buf[:], r.Time)
	if errors.Is(err, sysfs.ErrNone) {
		err = sysfs.Fail(m.status.Path, unix.ENOENT)
	}
	if err != nil {
		r.Fail(err)
		return false, false
	}
	switch string(bytes.TrimSpace(text)) {
	case "up":
		up = true
	case "down", "going down", "going back":
	default:
		r.Fail(sysfs.Invalid(m.status.Path, text, "no link status"))
		return false, false
	}
	r.Add(b.table.memberUp, m.labels, collector.Bool(up))
	return up, true
}

func (b *bond) readActive(r *collector.Reading, m *member) {
	word, ok := b.word(r, &m.state)
	switch {
	case !ok:
	case string(word) == "active", string(word) == "backup":
		r.Add(b.table.memberActive, m.labels, collector.Bool(string(word) == "active"))
	default:
		r.Fail(sysfs.Invalid(m.state.Path, word, "neither active nor backup"))
	}
}

// memberNumber reads one file of a member as a number. LACP's files read N/A
// while the member is in no aggregator: absent, and no fault.
func (b *bond) memberNumber(r *collector.Reading, f *sysfs.Attr) (v uint64, ok bool) {
	text, err := f.Read(b.buf[:], r.Time)
	lacp := strings.HasPrefix(filepath.Base(f.Path), "ad_")
	if errors.Is(err, sysfs.ErrNone) || err == nil && lacp && string(bytes.TrimSpace(text)) == "N/A" {
		return 0, false
	}
	if err == nil {
		v, err = sysfs.ParseUint(text)
	}
	r.Fail(sysfs.At(f.Path, err))
	return v, err == nil
}

// readLACPMembers emits the aggregator, port states and churn of each member.
func (b *bond) readLACPMembers(r *collector.Reading) {
	for _, m := range b.members {
		for side, n := range m.inProc.churn {
			if n.ok {
				r.Add(b.table.memberChurned, m.churnLabels[side], float64(n.value))
			}
		}
		if !m.found {
			continue // a fault already
		}
		if v, ok := b.memberNumber(r, &m.aggregator); ok {
			r.Add(b.table.memberAggregator, m.labels, float64(v))
		}
		for side := range m.portState {
			file := &m.portState[side]
			v, ok := b.memberNumber(r, file)
			if !ok && !file.Seen() { // Linux before 4.1 has it in /proc alone
				v, ok = m.inProc.state[side].value, m.inProc.state[side].ok
			}
			if ok && v > 0xff {
				r.Fail(sysfs.Invalid(file.Path, fmt.Append(nil, v), "no LACP port state"))
				continue
			}
			for bit := 0; ok && bit < len(m.portStateLabels[side]); bit++ {
				r.Add(b.table.memberPortState, m.portStateLabels[side][bit], float64(v>>bit&1))
			}
		}
	}
}
