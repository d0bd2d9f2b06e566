package bond

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
)

// sides returns the sides of a LACP link: this host and the switch.
func sides() [2]string { return [2]string{"actor", "partner"} }

// portStates are the bits of a LACP port state, lowest first (IEEE 802.1AX, LACP_STATE_* in include/net/bond_3ad.h).
func portStates() [8]string {
	return [8]string{"activity", "timeout", "aggregation", "synchronization", "collecting", "distributing",
		"defaulted", "expired"}
}

type member struct {
	name   string
	files  collector.Files // files of the interface
	labels []string
}

// readMembers emits each member's state. It counts the members that are up only if all could be read: a count that
// is too low would be a false alarm.
func (b *bond) readMembers(r *collector.Reading) {
	up, all := 0, true
	for _, m := range b.members {
		carrier, err := m.files.Attr("carrier").Carrier(r.Time)
		r.Record(b.table.memberCarrier, collector.Bool(carrier), err, m.labels)
		// Only "up" counts: the other states carry no new traffic (bond_slave_link_status()).
		status := m.files.Attr("bonding_slave/mii_status")
		isUp, ok := b.readState(r, status, b.table.memberUp, m.labels, "up", "down", "going down", "going back")
		all = all && ok
		if isUp {
			up++
		}
		if status.Resting(r.Time) {
			r.Fail(sysfs.Fail(status.Path, unix.ENOENT))
		}
		if v, ok := b.number(r, m.files.Attr("bonding_slave/link_failure_count")); ok {
			r.Add(b.table.memberFailures, m.labels, float64(v))
		}
		b.readState(r, m.files.Attr("bonding_slave/state"), b.table.memberActive, m.labels, "active", "backup")
	}
	if all {
		r.Add(b.table.membersUp, b.labels, float64(up))
	}
}

// readLACPMembers emits aggregator, port states and churn. These files contain N/A for a member without an
// aggregator.
func (b *bond) readLACPMembers(r *collector.Reading) {
	for _, m := range b.members {
		if v, ok := b.number(r, m.files.Attr("bonding_slave/ad_aggregator_id"), "N/A"); ok {
			r.Add(b.table.memberAggregator, m.labels, float64(v))
		}
		for _, side := range sides() {
			if n, ok := b.churn[churnKey{m.name, side}]; ok {
				r.Add(b.table.memberChurned, []string{b.name, m.name, side}, float64(n))
			}
			file := m.files.Attr("bonding_slave/ad_" + side + "_oper_port_state")
			v, ok := b.number(r, file, "N/A")
			switch {
			case !ok:
			case v > 0xff:
				r.Fail(sysfs.Invalid(file.Path, fmt.Append(nil, v), "not a LACP port state"))
			default:
				for bit, state := range portStates() {
					r.Add(b.table.memberPortState, []string{b.name, m.name, side, state}, float64(v>>bit&1))
				}
			}
		}
	}
}

// Bounds of /proc/net/bonding/<bond>. A LACP member takes about 700 bytes.
const (
	maxProc    = 128 << 10
	maxMembers = 128
)

type churnKey struct{ member, side string }

// parseProc returns how often each side of a member's link did not synchronize in time (bond_info_show_slave() of
// drivers/net/bonding/bond_procfs.c). Unknown lines are ignored; invalid numbers are in errs.
func parseProc(b []byte) (churn map[churnKey]uint64, errs []error) {
	counts := map[string]string{"Actor Churned Count": "actor", "Partner Churned Count": "partner"} // line name → side
	churn = make(map[churnKey]uint64)
	var member string // empty outside a valid section
	members := 0
	for line := range bytes.Lines(b) {
		key, value, found := bytes.Cut(line, []byte(":"))
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		side := counts[string(key)]
		switch {
		case !found:
		case string(key) == "Slave Interface":
			members++
			if members > maxMembers {
				err := fmt.Errorf("more than %d members", maxMembers)
				return churn, append(errs, &sysfs.Error{Reason: sysfs.ReasonTooLarge, Err: err})
			}
			member = string(value)
			if !sysfs.ValidNetdev(member) {
				member = ""
			}
		case side != "" && member != "":
			v, err := sysfs.ParseUint(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, %s: %w", member, key, err))
				continue
			}
			churn[churnKey{member, side}] = v
		}
	}
	return churn, errs
}

// readProc reads /proc/net/bonding/<bond>. If the file is missing, as in another network namespace, churn is
// unknown: a fault.
func (b *bond) readProc(r *collector.Reading) {
	text, more, err := proc.Head(b.proc, maxProc)
	if more {
		text, err = "", sysfs.TooLarge(b.proc, maxProc)
	}
	if err != nil {
		f := collector.NewFault(b.name, err)
		f.Expected = f.Expected || errors.Is(err, os.ErrNotExist)
		r.Fault(f)
	}
	var errs []error
	b.churn, errs = parseProc([]byte(text))
	for _, err := range errs {
		r.Fail(fmt.Errorf("read %s: %w", b.proc, err))
	}
}
