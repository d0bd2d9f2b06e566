package bond

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfs"
)

// bond is one bond.
type bond struct {
	table *table
	name  string
	net   string // <sysfs>/class/net
	dir   string // <bond>/bonding
	proc  string // <procfs>/net/bonding/<bond>

	status, slaves, active          sysfs.Attr
	aggregator, ports, partnerMAC   sysfs.Attr
	facts, lacpFacts                collector.Facts
	mode                            string
	members                         []*member           // in the kernel's order
	listed                          bool                // members are those of now
	known                           map[string]struct{} // every member so far
	labels, activeLabels, macLabels []string

	buf     [sysfs.MaxFile + 1]byte
	procBuf []byte
}

func (s *Source) open(k key) *bond {
	net := filepath.Join(s.sysfs, "class/net")
	b := &bond{table: s.table, name: k.name, net: net, dir: filepath.Join(net, k.name, "bonding"),
		proc: filepath.Join(s.procfs, "net/bonding", k.name), labels: []string{k.name}, known: map[string]struct{}{}}
	for name, f := range b.files() {
		f.Path = filepath.Join(b.dir, name)
	}
	return b
}

// files are the files that are read at every read, by name.
func (b *bond) files() map[string]*sysfs.Attr {
	return map[string]*sysfs.Attr{"mii_status": &b.status, "slaves": &b.slaves, "active_slave": &b.active,
		"ad_aggregator": &b.aggregator, "ad_num_ports": &b.ports, "ad_partner_mac": &b.partnerMAC}
}

// Close implements [collector.Device].
func (b *bond) Close() {
	for _, f := range b.files() {
		f.Close()
	}
	b.closeMembers(b.members)
}

func (b *bond) closeMembers(list []*member) {
	for _, m := range list {
		m.close()
	}
}

// Read implements [collector.Device]. Each file's failure costs what that file says.
func (b *bond) Read(r *collector.Reading) {
	b.facts.Read(r, func() { b.readConfiguration(r) })
	b.readStatus(r)
	lacp := b.mode == "802.3ad"
	if b.listed = b.list(r); b.listed {
		b.readMembers(r)
		r.Add(b.table.members, b.labels, float64(len(b.members)))
		r.Add(b.table.membersMissing, b.labels, float64(len(b.known)-len(b.members)))
	}
	if !lacp {
		return
	}
	hasAggregator := b.readAggregator(r)
	b.lacpFacts.Read(r, func() { b.readLACPFacts(r, hasAggregator) })
	if b.listed {
		b.readLACPMembers(r)
	}
}

// word returns the first word of a file: "802.3ad 4" is the mode 802.3ad. ok is
// false where the file is absent or cannot be read, which is then a fault.
func (b *bond) word(r *collector.Reading, f *sysfs.Attr) (word []byte, ok bool) {
	text, err := f.Read(b.buf[:], r.Time)
	if errors.Is(err, sysfs.ErrNone) {
		return nil, false
	}
	r.Fail(err)
	word, _, _ = bytes.Cut(bytes.TrimSpace(text), []byte(" "))
	return word, err == nil
}

// option returns the first word of a file that is read now and then. Not every
// kernel has each of them; the mode they have.
func (b *bond) option(r *collector.Reading, file string) (word string, ok bool) {
	text, err := sysfs.ReadString(b.dir, file)
	if file == "mode" || !errors.Is(err, unix.ENOENT) {
		r.Fail(err)
	}
	word, _, _ = strings.Cut(text, " ")
	return word, err == nil
}

// readConfiguration emits bond_info and keeps the mode, "" when it is not known.
func (b *bond) readConfiguration(r *collector.Reading) {
	b.mode = ""
	mode, ok := b.option(r, "mode")
	if !ok {
		return
	}
	if !slices.Contains(modes(), mode) {
		r.Fail(sysfs.Invalid(filepath.Join(b.dir, "mode"), []byte(mode), "no bonding mode"))
		return
	}
	b.mode = mode
	values := []string{b.name, mode, "", "", ""}
	for i, file := range []string{"xmit_hash_policy", "miimon", "lacp_rate"} {
		if file == "xmit_hash_policy" && !hashes(mode) || file == "lacp_rate" && mode != "802.3ad" {
			continue // the driver prints the option in every mode, used or not
		}
		word, ok := b.option(r, file)
		switch {
		case !ok:
		case !printable(word):
			r.Fail(sysfs.Invalid(filepath.Join(b.dir, file), []byte(word), "no option's name"))
		default:
			values[2+i] = word
		}
	}
	r.Add(b.table.info, values, 1)
}

// modes are the names of bond_mode_tbl in drivers/net/bonding/bond_options.c.
func modes() []string {
	return []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
}

// hashes reports whether a bond of the mode spreads flows by xmit_hash_policy
// (bond_mode_uses_xmit_hash() in include/net/bonding.h).
func hashes(mode string) bool {
	switch mode {
	case "balance-xor", "802.3ad", "balance-tlb", "balance-alb":
		return true
	}
	return false
}

// printable reports whether an option's value can stand in a label: the driver's
// words are printable ASCII.
func printable(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// readStatus emits whether the bond is up, and which member carries its traffic.
func (b *bond) readStatus(r *collector.Reading) {
	if word, ok := b.word(r, &b.status); ok {
		switch string(word) {
		case "up", "down":
			r.Add(b.table.up, b.labels, collector.Bool(string(word) == "up"))
		default:
			r.Fail(sysfs.Invalid(b.status.Path, word, "neither up nor down"))
		}
	}
	word, ok := b.word(r, &b.active)
	switch {
	case !ok || len(word) == 0:
	case !sysfs.ValidNetdev(string(word)):
		r.Fail(sysfs.Invalid(b.active.Path, word, "not the name of an interface"))
	default:
		if b.activeLabels == nil || b.activeLabels[1] != string(word) {
			b.activeLabels = []string{b.name, string(word)}
		}
		r.Add(b.table.activeMember, b.activeLabels, 1)
	}
}

// list brings the members up to date, and returns false where they cannot be
// known.
func (b *bond) list(r *collector.Reading) bool {
	text, err := b.slaves.Read(b.buf[:], r.Time)
	if errors.Is(err, sysfs.ErrNone) {
		err = sysfs.Fail(b.slaves.Path, unix.ENOENT)
	}
	if err != nil {
		r.Fail(err)
		return false
	}
	at, same := 0, true
	for name := range bytes.FieldsSeq(text) {
		same = same && at < len(b.members) && b.members[at].name == string(name)
		at++
	}
	if same && at == len(b.members) {
		return true
	}
	names := strings.Fields(string(text))
	for _, name := range names {
		if !sysfs.ValidNetdev(name) || name == "++more++" {
			r.Fail(sysfs.Invalid(b.slaves.Path, []byte(name), "not the name of an interface"))
			return false
		}
	}
	before := b.members
	b.members, b.lacpFacts = nil, collector.Facts{} // /proc knows more of them now
	for _, name := range names {
		i := slices.IndexFunc(before, func(m *member) bool { return m.name == name })
		if i >= 0 {
			b.members = append(b.members, before[i])
			before = slices.Delete(before, i, i+1)
		} else {
			b.members = append(b.members, newMember(b, name))
		}
		b.known[name] = struct{}{}
	}
	b.closeMembers(before)
	return true
}

// readAggregator emits the active aggregator, and reports whether there is one.
// The driver prints 0 where there is none, and hides the partner from whoever
// lacks CAP_NET_ADMIN by an empty file.
func (b *bond) readAggregator(r *collector.Reading) bool {
	id, known := b.number(r, &b.aggregator)
	if id > 0 {
		r.Add(b.table.aggregator, b.labels, float64(id))
	}
	if v, ok := b.number(r, &b.ports); ok {
		r.Add(b.table.aggregatorPorts, b.labels, float64(v))
	}
	word, ok := b.word(r, &b.partnerMAC)
	switch {
	case !ok || !known:
	case id == 0:
		r.Add(b.table.partnerPresent, b.labels, 0)
	case len(word) == 0: // hidden
	case !validMAC(word):
		r.Fail(sysfs.Invalid(b.partnerMAC.Path, word, "no MAC address"))
	case string(word) == "00:00:00:00:00:00":
		r.Add(b.table.partnerPresent, b.labels, 0)
	default:
		r.Add(b.table.partnerPresent, b.labels, 1)
		if b.macLabels == nil || b.macLabels[1] != string(word) {
			b.macLabels = []string{b.name, string(word)}
		}
		r.Add(b.table.partner, b.macLabels, 1)
	}
	return id > 0
}

// number reads one of the bond's LACP files; an empty one is absent.
func (b *bond) number(r *collector.Reading, f *sysfs.Attr) (v uint64, ok bool) {
	word, ok := b.word(r, f)
	if !ok || len(word) == 0 {
		return 0, false
	}
	v, err := sysfs.ParseUint(word)
	r.Fail(sysfs.At(f.Path, err))
	return v, err == nil
}

// readLACPFacts emits the keys of the active aggregator, which are hidden as the
// partner is, and reads /proc: a side churns once a minute at most.
func (b *bond) readLACPFacts(r *collector.Reading, hasAggregator bool) {
	b.readProc(r)
	if !hasAggregator {
		return
	}
	for file, row := range map[string]*collector.Metric{
		"ad_actor_key": b.table.actorKey, "ad_partner_key": b.table.partnerKey,
	} {
		word, ok := b.option(r, file)
		if !ok || word == "" {
			continue
		}
		if v, err := sysfs.ParseUint([]byte(word)); err != nil {
			r.Fail(sysfs.At(filepath.Join(b.dir, file), err))
		} else {
			r.Add(row, b.labels, float64(v))
		}
	}
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
