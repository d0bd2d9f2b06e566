package collector

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// The files of <bond>/bonding, in the order of bondState.dir.
const (
	fileMode = iota
	fileHash
	fileMiimon
	fileLACPRate
	fileStatus
	fileMembers
	fileActive
	fileAggregator
	filePorts
	fileActorKey
	filePartnerKey
	filePartnerMAC
)

var bondFiles = []string{"mode", "xmit_hash_policy", "miimon", "lacp_rate", "mii_status", "slaves", "active_slave",
	"ad_aggregator", "ad_num_ports", "ad_actor_key", "ad_partner_key", "ad_partner_mac"}

// The files of <member>/bonding_slave, in the order of bondMember.dir.
const (
	fileMemberStatus = iota
	fileMemberFailures
	fileMemberState
	fileMemberAggregator
	fileMemberActorState
	fileMemberPartnerState
)

var bondMemberFiles = []string{"mii_status", "link_failure_count", "state", "ad_aggregator_id", "ad_actor_oper_port_state", "ad_partner_oper_port_state"}

// bondPortStates are the bits of a LACP port state, lowest first (IEEE 802.1AX,
// LACP_STATE_* in include/net/bond_3ad.h).
var bondPortStates = [8]string{"activity", "timeout", "aggregation", "synchronization", "collecting", "distributing", "defaulted", "expired"}

// bondState is a bond as last read. It belongs to the bond's lane.
type bondState struct {
	name    string
	rows    []Metric
	net     string // <sysfs>/class/net
	proc    string // <procfs>/net/bonding/<bond>
	dir     *keptDir
	members []*bondMember       // in the kernel's order
	known   map[string]struct{} // every member of this life of the bond

	labels, info, active, partner []string // cached, because they rarely change

	out          laneRead
	buf, procBuf []byte
}

type bondMember struct {
	name    string
	dir     *keptDir // bonding_slave; nil until found
	netdev  *keptDir // carrier
	labels  []string
	churned [sides][]string
	state   [sides][8][]string
}

func newBondState(b *Bond, name string) *bondState {
	net := filepath.Join(b.sysfs, "class/net")
	return &bondState{name: name, rows: b.rows, net: net, proc: filepath.Join(b.procfs, "net/bonding", name), labels: []string{name},
		dir: newKeptDir(filepath.Join(net, name, "bonding"), bondFiles...), known: make(map[string]struct{}), buf: make([]byte, sysfs.MaxFile+1)}
}

func (s *bondState) row(i int) *Metric { return &s.rows[i] }

func (s *bondState) fail(err error) {
	if err != nil {
		s.out.fail(s.name, err)
	}
}

// read reads the bond; each file's failure costs what that file tells.
func (s *bondState) read(rails []rail.Rail) *laneRead {
	s.out.reset()
	born, err := s.dir.check()
	if err != nil {
		s.fail(err)
		return &s.out
	}
	if born {
		s.forget()
	}
	mode, ok := s.configuration()
	s.status()
	lacp := ok && mode == "802.3ad"
	if s.list() {
		s.counts()
		s.out.add(s.row(bondMembers), s.labels, float64(len(s.members)))
		s.out.add(s.row(bondMembersMissing), s.labels, float64(len(s.known)-len(s.members)))
		s.rdma(rails)
		if lacp {
			s.lacpMembers()
		}
	}
	if lacp {
		s.aggregator()
	}
	return &s.out
}

// word returns the first word of file i: "802.3ad 4" is the mode 802.3ad. ok is
// false where the file is absent or cannot be read, which is then told.
func (s *bondState) word(i int) (word []byte, ok bool) {
	b, err := s.dir.read(i, s.buf)
	if b == nil || err != nil {
		s.fail(err)
		return nil, false
	}
	word, _, _ = bytes.Cut(bytes.TrimSpace(b), []byte(" "))
	return word, true
}

// configuration emits bond_info. mode is "" when ok is false.
func (s *bondState) configuration() (mode string, ok bool) {
	word, ok := s.word(fileMode)
	if ok && !slices.Contains(bondModes[:], string(word)) {
		s.fail(s.dir.bad(fileMode, word, "no bonding mode"))
		ok = false
	}
	if !ok {
		return "", false
	}
	mode = bondModes[slices.Index(bondModes[:], string(word))]
	values := [5]string{s.name, mode}
	if s.info == nil {
		s.info = slices.Clone(values[:])
	}
	for i, file := range [...]int{2: fileHash, 3: fileMiimon, 4: fileLACPRate} {
		if i < 2 || i == 2 && !hashes(mode) || i == 4 && mode != "802.3ad" {
			continue // the driver prints the option in every mode, used or not
		}
		if word, ok := s.word(file); ok {
			if values[i] = s.info[i]; string(word) != values[i] {
				values[i] = string(word)
			}
			if !plainWord(values[i]) {
				s.fail(s.dir.bad(file, word, "no option's name"))
				values[i] = ""
			}
		}
	}
	if !slices.Equal(s.info, values[:]) {
		s.info = slices.Clone(values[:])
	}
	s.out.add(s.row(bondInfo), s.info, 1)
	return mode, true
}

// bondModes are the names of bond_mode_tbl in drivers/net/bonding/bond_options.c.
var bondModes = [...]string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}

// hashes reports whether a bond of the mode spreads flows by xmit_hash_policy
// (bond_mode_uses_xmit_hash() in include/net/bonding.h).
func hashes(mode string) bool {
	switch mode {
	case "balance-xor", "802.3ad", "balance-tlb", "balance-alb":
		return true
	}
	return false
}

// plainWord reports whether an option's value can stand in a label: the
// driver's words are printable ASCII.
func plainWord(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// status emits whether the bond is up, and who carries its traffic.
func (s *bondState) status() {
	if word, ok := s.word(fileStatus); ok {
		switch string(word) {
		case "up", "down":
			s.out.add(s.row(bondUp), s.labels, Bool(string(word) == "up"))
		default:
			s.fail(s.dir.bad(fileStatus, word, "neither up nor down"))
		}
	}
	word, ok := s.word(fileActive)
	switch {
	case !ok || len(word) == 0:
	case !validNetdev(string(word)):
		s.fail(s.dir.bad(fileActive, word, "not the name of an interface"))
	default:
		if s.active == nil || s.active[1] != string(word) {
			s.active = []string{s.name, string(word)}
		}
		s.out.add(s.row(bondActiveMember), s.active, 1)
	}
}

// list brings the members up to date, and returns false where they cannot be
// known.
func (s *bondState) list() bool {
	b, err := s.dir.read(fileMembers, s.buf)
	if err == nil && b == nil {
		err = sysfs.Fail(s.dir.files[fileMembers].Path, unix.ENOENT)
	}
	if err != nil {
		s.fail(err)
		return false
	}
	at, same := 0, true
	for name := range bytes.FieldsSeq(b) {
		same = same && at < len(s.members) && s.members[at].name == string(name)
		at++
	}
	if same && at == len(s.members) {
		return true
	}
	names := strings.Fields(string(b))
	for _, name := range names {
		if !validNetdev(name) || name == "++more++" {
			s.fail(s.dir.bad(fileMembers, []byte(name), "not the name of an interface"))
			return false
		}
	}
	before := s.members
	s.members = nil
	for _, name := range names {
		i := slices.IndexFunc(before, func(m *bondMember) bool { return m.name == name })
		if i >= 0 {
			s.members = append(s.members, before[i])
			before = slices.Delete(before, i, i+1)
		} else {
			s.members = append(s.members, newBondMember(s, name))
		}
		s.known[name] = struct{}{}
	}
	for _, m := range before {
		m.close()
	}
	return true
}

func newBondMember(s *bondState, name string) *bondMember {
	m := &bondMember{name: name, labels: []string{s.name, name}, netdev: newKeptDir(filepath.Join(s.net, name), "carrier")}
	for side, text := range bondSides {
		m.churned[side] = []string{s.name, name, text}
		for bit, state := range bondPortStates {
			m.state[side][bit] = []string{s.name, name, text, state}
		}
	}
	return m
}

// find makes sure that the member's bonding_slave directory is open. It is
// below the member itself; the ways around by the bond's links are for captured
// trees that have only those, lower_ as of Linux 3.18, slave_ before.
func (m *bondMember) find(s *bondState) (err error) {
	if m.dir != nil {
		if _, err = m.dir.check(); err == nil {
			return nil
		}
		m.dir = nil
	}
	for _, path := range [...]string{
		filepath.Join(s.net, m.name, "bonding_slave"),
		filepath.Join(s.net, s.name, "lower_"+m.name, "bonding_slave"),
		filepath.Join(s.net, s.name, "slave_"+m.name, "bonding_slave"),
	} {
		dir := newKeptDir(path, bondMemberFiles...)
		if _, e := dir.check(); e == nil {
			m.dir = dir
			return nil
		} else if err == nil {
			err = e
		}
	}
	return err
}

func (m *bondMember) close() {
	m.netdev.close()
	if m.dir != nil {
		m.dir.close()
	}
}

// forget drops what belongs to another life of the bond.
func (s *bondState) forget() {
	for _, m := range s.members {
		m.close()
	}
	s.members = nil
	clear(s.known)
}

func (s *bondState) close() {
	s.forget()
	s.dir.close()
	s.out.reset()
}
