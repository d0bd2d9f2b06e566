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

// Bounds of /proc/net/bonding/<bond>. A LACP member takes about 700 bytes.
const (
	maxProc    = 128 << 10
	maxMembers = 128
)

type churnKey struct {
	member string
	side   int
}

// parseProc returns how often each side of a member's link did not synchronize in time (bond_info_show_slave() of
// drivers/net/bonding/bond_procfs.c). Unknown lines are ignored; invalid numbers are in errs.
func parseProc(b []byte) (churn map[churnKey]uint64, errs []error) {
	churn = make(map[churnKey]uint64)
	var member string // "" outside of a valid section
	members := 0
	for line := range bytes.Lines(b) {
		key, value, found := bytes.Cut(line, []byte(":"))
		key, value = bytes.TrimSpace(key), bytes.TrimSpace(value)
		side := slices.Index([]string{"Actor Churned Count", "Partner Churned Count"}, string(key))
		switch {
		case !found:
		case string(key) == "Slave Interface":
			if members++; members > maxMembers {
				err := fmt.Errorf("more than %d members", maxMembers)
				return churn, append(errs, &sysfs.Error{Reason: sysfs.ReasonTooLarge, Err: err})
			}
			if member = string(value); !sysfs.ValidNetdev(member) {
				member = ""
			}
		case side >= 0 && member != "":
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

// readProc reads /proc/net/bonding/<bond>. Without it, as in another network namespace, churn is unknown: a fault.
func (b *bond) readProc(r *collector.Reading) {
	text, err := sysfs.ReadSeq(b.proc, maxProc)
	if err != nil {
		f := collector.NewFault(b.name, err)
		f.Expected = f.Expected || errors.Is(err, os.ErrNotExist)
		r.Fault(f)
	}
	var errs []error
	b.churn, errs = parseProc(text)
	for _, err := range errs {
		r.Fail(fmt.Errorf("read %s: %w", b.proc, err))
	}
}
