package bond

import (
	"bytes"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

type bond struct {
	table *table
	name  string
	net   string // <sysfs>/class/net
	proc  string // <procfs>/net/bonding/<bond>

	files            collector.Files // files of <bond>/bonding
	facts, lacpFacts collector.Facts
	mode             string
	members          []*member           // in the kernel's order
	known            map[string]struct{} // every member so far
	churn            map[churnKey]uint64 // churn counters of the last read
	labels           []string

	buf [sysfs.MaxFile + 1]byte
}

func (s *Source) open(k key) *bond {
	net := filepath.Join(s.sysfs, "class/net")
	return &bond{table: s.table, name: k.name, net: net, proc: filepath.Join(s.procfs, "net/bonding", k.name),
		files: collector.NewFiles(net, k.name, "bonding"), labels: []string{k.name}, known: map[string]struct{}{}}
}

func (b *bond) Close() {
	b.files.Close()
	for _, m := range b.members {
		m.files.Close()
	}
}

// Read implements [collector.Device]. A file that cannot be read costs its own rows only.
func (b *bond) Read(r *collector.Reading) {
	b.facts.Read(r, func() { b.readConfiguration(r) })
	b.readState(r, b.files.Attr("mii_status"), b.table.up, b.labels, "up", "down")
	b.readActiveMember(r)
	listed := b.updateMembers(r)
	if listed {
		b.readMembers(r)
		r.Add(b.table.members, b.labels, float64(len(b.members)))
		r.Add(b.table.membersMissing, b.labels, float64(len(b.known)-len(b.members)))
	}
	if b.mode == lacp {
		hasAggregator := b.readAggregator(r)
		b.lacpFacts.Read(r, func() { b.readLACPFacts(r, hasAggregator) })
		if listed {
			b.readLACPMembers(r)
		}
	}
}

// read returns the content of a file. If the file does not exist or cannot be read, ok is false; the latter is a
// fault.
func (b *bond) read(r *collector.Reading, f *sysfs.Attr) (text []byte, ok bool) {
	text, err := f.Read(b.buf[:], r.Time)
	r.Fail(err)
	return bytes.TrimSpace(text), err == nil
}

// readState emits 1 if the file holds yes and 0 if it holds one of no, and returns the state. Otherwise ok is
// false.
func (b *bond) readState(r *collector.Reading, f *sysfs.Attr, row *collector.Metric, labels []string,
	yes string, no ...string,
) (is, ok bool) {
	text, ok := b.read(r, f)
	if !ok {
		return false, false
	}
	is = string(text) == yes
	if !is && !slices.Contains(no, string(text)) {
		r.Fail(sysfs.Invalid(f.Path, text, "neither "+yes+" nor "+strings.Join(no, " nor ")))
		return false, false
	}
	r.Add(row, labels, collector.Bool(is))
	return is, true
}

// number reads a file as a number. If the file holds one of absent, ok is false.
func (b *bond) number(r *collector.Reading, f *sysfs.Attr, absent ...string) (v uint64, ok bool) {
	text, ok := b.read(r, f)
	if !ok || slices.Contains(absent, string(text)) {
		return 0, false
	}
	v, err := sysfs.ParseUint(text)
	r.Fail(sysfs.At(f.Path, err))
	return v, err == nil
}

// option returns the first word of an option's file: for "802.3ad 4" it is 802.3ad. Old kernels have only the mode.
func (b *bond) option(r *collector.Reading, file string) (word string, ok bool) {
	text, err := sysfs.ReadString(b.files.Dir, file)
	if file == "mode" || !errors.Is(err, unix.ENOENT) {
		r.Fail(err)
	}
	word, _, _ = strings.Cut(text, " ")
	return word, err == nil
}

const lacp = "802.3ad"

// readConfiguration emits bond_info and keeps the mode, "" if it is unknown.
func (b *bond) readConfiguration(r *collector.Reading) {
	mode, ok := b.option(r, "mode")
	// The names of bond_mode_tbl in drivers/net/bonding/bond_options.c, and whether a bond of the mode spreads flows by
	// xmit_hash_policy (bond_mode_uses_xmit_hash() in include/net/bonding.h).
	hashes, valid := map[string]bool{"balance-rr": false, "active-backup": false, "balance-xor": true,
		"broadcast": false, lacp: true, "balance-tlb": true, "balance-alb": true}[mode]
	b.mode = mode
	if !valid {
		b.mode = ""
		if ok {
			r.Fail(sysfs.Invalid(b.files.Attr("mode").Path, []byte(mode), "not a bonding mode"))
		}
		return
	}
	values := []string{b.name, mode, "", "", ""}
	for i, file := range []string{"xmit_hash_policy", "miimon", "lacp_rate"} {
		if file == "xmit_hash_policy" && !hashes || file == "lacp_rate" && mode != lacp {
			continue // the driver prints the option in every mode, used or not
		}
		word, ok := b.option(r, file)
		switch {
		case !ok:
		case !printable(word):
			r.Fail(sysfs.Invalid(b.files.Attr(file).Path, []byte(word), "not the name of an option"))
		default:
			values[2+i] = word
		}
	}
	r.Add(b.table.info, values, 1)
}

// printable reports whether an option's value can be a label value: the driver's words are printable ASCII.
func printable(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (b *bond) readActiveMember(r *collector.Reading) {
	file := b.files.Attr("active_slave")
	name, ok := b.read(r, file)
	switch {
	case !ok || len(name) == 0:
	case !sysfs.ValidNetdev(string(name)):
		r.Fail(sysfs.Invalid(file.Path, name, "not an interface name"))
	default:
		r.Add(b.table.activeMember, []string{b.name, string(name)}, 1)
	}
}

// updateMembers updates the list of members, and returns false if it cannot be read.
func (b *bond) updateMembers(r *collector.Reading) bool {
	file := b.files.Attr("slaves")
	text, err := file.File.Read(b.buf[:])
	if err != nil {
		r.Fail(err)
		return false
	}
	names := strings.Fields(string(text))
	if slices.EqualFunc(names, b.members, func(name string, m *member) bool { return m.name == name }) {
		return true
	}
	for _, name := range names {
		if !sysfs.ValidNetdev(name) || name == "++more++" {
			r.Fail(sysfs.Invalid(file.Path, []byte(name), "not an interface name"))
			return false
		}
	}
	before := make(map[string]*member)
	for _, m := range b.members {
		before[m.name] = m
	}
	b.members, b.lacpFacts = nil, collector.Facts{} // the members changed, so read /proc again
	for _, name := range names {
		m := before[name]
		if m == nil {
			m = &member{name: name, labels: []string{b.name, name}, files: collector.NewFiles(b.net, name)}
		}
		delete(before, name)
		b.members = append(b.members, m)
		b.known[name] = struct{}{}
	}
	for _, m := range before {
		m.files.Close()
	}
	return true
}

// readAggregator emits the active aggregator, and reports whether there is one. The driver prints 0 without one, and an
// empty file for the partner to a process without CAP_NET_ADMIN.
func (b *bond) readAggregator(r *collector.Reading) bool {
	id, known := b.number(r, b.files.Attr("ad_aggregator"), "")
	if id > 0 {
		r.Add(b.table.aggregator, b.labels, float64(id))
	}
	if v, ok := b.number(r, b.files.Attr("ad_num_ports"), ""); ok {
		r.Add(b.table.aggregatorPorts, b.labels, float64(v))
	}
	file := b.files.Attr("ad_partner_mac")
	text, ok := b.read(r, file)
	mac, err := net.ParseMAC(string(text))
	switch {
	case !ok || !known:
	case id == 0:
		r.Add(b.table.partnerPresent, b.labels, 0)
	case len(text) == 0: // hidden
	case err != nil || len(mac) != 6 || mac.String() != string(text):
		r.Fail(sysfs.Invalid(file.Path, text, "not a MAC address"))
	case string(text) == "00:00:00:00:00:00":
		r.Add(b.table.partnerPresent, b.labels, 0)
	default:
		r.Add(b.table.partnerPresent, b.labels, 1)
		r.Add(b.table.partner, []string{b.name, string(text)}, 1)
	}
	return id > 0
}

// readLACPFacts emits the aggregator's keys, which an unprivileged process cannot see, and reads churn from /proc,
// whose counters increase at most once a minute.
func (b *bond) readLACPFacts(r *collector.Reading, hasAggregator bool) {
	b.readProc(r)
	if !hasAggregator {
		return
	}
	for file, row := range map[string]*collector.Metric{
		"ad_actor_key": b.table.actorKey, "ad_partner_key": b.table.partnerKey,
	} {
		if word, ok := b.option(r, file); ok && word != "" {
			v, err := sysfs.ParseUint([]byte(word))
			r.Record(row, float64(v), sysfs.At(b.files.Attr(file).Path, err), b.labels)
		}
	}
}
