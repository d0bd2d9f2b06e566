// Package inventory lists a node's rails for people and scripts: the capacity of each, its GID, and the reasons.
package inventory

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/terminal"
)

// List is the output of `railscope rails`. Unknown values are absent.
type List struct {
	Rails    []Rail         `json:"rails"`
	LeftOut  []rail.LeftOut `json:"left_out"`
	Missing  []rail.Missing `json:"missing"`
	Problems []string       `json:"problems"` // errors of reads
}

// Rail is one rail.
type Rail struct {
	rail.Rail
	State         string  `json:"state"`
	PhysicalState string  `json:"physical_state"`
	Rate          float64 `json:"rate_bytes_per_second,omitempty"`
	Capacity      float64 `json:"capacity_bytes_per_second,omitempty"`
	NetdevMTU     int     `json:"netdev_mtu_bytes,omitempty"`
	ActiveMTU     int     `json:"active_mtu_bytes,omitempty"`
	Address
	// last evidence of what the rail can carry, as the railscope that runs here knows it
	Proof *proof.Proof `json:"proof,omitempty"`

	BytesFrom string `json:"bytes_from"` // see [rail.Port.BytesFrom]
	Unused    bool   `json:"unused"`     // see [rail.Unused]

	CharacterDevices []string `json:"character_devices"` // devices that a program needs to use the rail
}

// Address is the GID that connections use.
type Address struct {
	GIDIndex  int    `json:"gid_index"` // -1 if none is usable
	GID       string `json:"gid"`
	GIDType   string `json:"gid_type"`
	GIDNetdev string `json:"gid_netdev"`
	Reason    string `json:"reason"` // reason for that GID
	Misbound  bool   `json:"gid_misbound"`
}

type port struct {
	rail   Rail
	limits rail.Limits
	use    rail.Use
	err    error // errors of reads
}

// Expected returns the expected properties of the node, for example an [expect.Keeper].
type Expected interface {
	Expected(rails []rail.Rail) []expect.Rail
	Node() expect.Node
}

// Read lists the rails of the tree at sysfsRoot with their character devices. It waits at most budget for each.
func Read(sysfsRoot string, finder *rail.Finder, nodes rdmadev.Finder, expected Expected, budget time.Duration) List {
	snap := finder.Snapshot()
	list := List{Rails: []Rail{}, LeftOut: append([]rail.LeftOut{}, snap.LeftOut...),
		Missing: append([]rail.Missing{}, snap.Missing...), Problems: messages(snap.Err)}
	names := make([]string, len(snap.Rails))
	byName := map[string]rail.Rail{}
	for i, r := range snap.Rails {
		names[i], byName[r.Name] = r.Name, r
	}
	var lanes lane.Group[port]
	var limits []rail.Limits
	var uses []rail.Use
	for i, res := range lanes.Run(budget, names, func(name string) port {
		p := readPort(sysfsRoot, byName[name])
		p.rail.CharacterDevices = append(p.rail.CharacterDevices, nodes.Nodes(p.rail.Device)...)
		return p
	}) {
		p := res.Value
		if res.Err != nil {
			r := snap.Rails[i]
			p = port{rail: describe(r), err: fmt.Errorf("%s port %d: %w", r.Device, r.Port, res.Err)}
		}
		list.Rails = append(list.Rails, p.rail)
		list.Problems = append(list.Problems, messages(p.err)...)
		limits, uses = append(limits, p.limits), append(uses, p.use)
	}
	for i, unused := range expect.Unused(uses, expected.Expected(snap.Rails), expected.Node().ConfiguredRails()) {
		list.Rails[i].Unused = unused
	}
	for i, capacity := range rail.Capacities(limits) {
		list.Rails[i].Capacity = capacity
	}
	return list
}

func describe(r rail.Rail) Rail {
	return Rail{Rail: r, State: "unknown", PhysicalState: "unknown", Address: Address{GIDIndex: -1},
		CharacterDevices: []string{}}
}

// readPort reads the port of a rail. It may hang.
func readPort(sysfsRoot string, r rail.Rail) port {
	in := rail.NewPort(sysfsRoot, r, nil)
	defer in.Close()
	p := port{rail: describe(r)}
	note := func(err error) bool {
		p.err = errors.Join(p.err, err)
		return err == nil
	}
	if state, err := in.State(); note(err) {
		_, p.rail.State, _ = strings.Cut(rail.StateName(state), ": ")
		p.limits, p.use = in.LimitsIn(state), in.Use(state)
		p.rail.Rate = p.limits.Rate
	}
	if state, err := in.PhysState(); note(err) {
		p.rail.PhysicalState = physStateName(state)
	}
	var err error
	p.rail.NetdevMTU, p.rail.ActiveMTU, err = in.MTU()
	note(err)
	p.rail.BytesFrom = in.BytesFrom()
	gids, errs := in.GIDs()
	for _, err := range errs {
		if !errors.Is(err, rail.ErrNoTable) { // already reported as the reason for no GID
			note(err)
		}
	}
	own := rail.Own(sysfsRoot, r.Netdev)
	p.rail.Misbound, _ = rail.Misbound(gids, own)
	c := rail.ChooseGID(gids, r.LinkLayer, own)
	p.rail.Reason = c.Reason
	if c.OK() {
		p.rail.GIDIndex, p.rail.GID = c.GID.Index, c.GID.Addr.StringExpanded()
		p.rail.GIDType, p.rail.GIDNetdev = c.GID.Type, c.GID.Netdev
	}
	return p
}

// physStateName returns a physical state in the kernel's words (drivers/infiniband/core/sysfs.c, phys_state_show).
func physStateName(state int) string {
	names := []string{"0", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery",
		"Phy Test"}
	if state < 0 || state >= len(names) {
		return strconv.Itoa(state)
	}
	return names[state]
}

func messages(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

// WriteJSON writes the list as one JSON object.
func (l List) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, l)
}

// WriteTable writes the list as a table; all includes every port that is not a rail.
func (l List) WriteTable(w io.Writer, all bool) error {
	var b bytes.Buffer
	switch {
	case len(l.Rails) == 0 && len(l.LeftOut) > 0:
		fmt.Fprintln(&b, "No rails: none of this machine's RDMA ports is one.")
	case len(l.Rails) == 0:
		fmt.Fprintln(&b, "No rails: sysfs has no RDMA device (class/infiniband).")
	default:
		l.writeRails(&b)
		if nodes := l.characterDevices(); len(nodes) > 0 {
			fmt.Fprintln(&b, terminal.Plain("Devices for a container: "+rdmadev.Flags(nodes)))
		}
	}
	l.writeLeftOut(&b, all)
	for _, m := range l.Missing {
		fmt.Fprintln(&b, terminal.Plain(fmt.Sprintf("Missing: rail %s (%s port %d at %s)", m.Name, dash(m.Device),
			m.Port, dash(m.PCIAddress))))
	}
	for _, p := range l.Problems {
		fmt.Fprintln(&b, terminal.Plain("Problem: "+p))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeRails writes the table. It has the column of proofs if there is one.
func (l List) writeRails(b *bytes.Buffer) {
	proved := slices.ContainsFunc(l.Rails, func(r Rail) bool { return r.Proof != nil })
	column := func(of []string, proof string) []string {
		if proved {
			return slices.Insert(of, len(of)-1, proof)
		}
		return of
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(column(strings.Fields("RAIL DEVICE PORT NETDEV ROLE GPU STATE RATE CAPACITY MTU PCI "+
		"NUMA GID ADDRESS WHY"), "PROOF"), "\t"))
	for _, r := range l.Rails {
		fmt.Fprintln(t, terminal.Row(column([]string{r.Name, r.Device, strconv.Itoa(r.Port), dash(r.Netdev), r.Role,
			dash(strings.TrimSpace(r.GPU + " " + string(r.GPUDistance))), r.state(), gigabits(r.Rate),
			gigabits(r.Capacity), number(r.ActiveMTU, 1), dash(r.PCIAddress), number(r.NUMANode, 0),
			number(r.GIDIndex, 0), dash(address(r.GID)), r.Reason}, dash(r.Proof.Text(time.Now())))...))
	}
	_ = t.Flush() // b never fails
}

// state returns the state for the table.
func (r Rail) state() string {
	if r.Unused {
		return "unused"
	}
	return r.State
}

func (l List) writeLeftOut(b *bytes.Buffer, all bool) {
	if all {
		for _, o := range l.LeftOut {
			fmt.Fprintln(b, terminal.Plain(fmt.Sprint("Not a rail: ", o)))
		}
		return
	}
	var parts []string
	for _, c := range rail.CountReasons(l.LeftOut) {
		parts = append(parts, c.String())
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "Not rails: %s (railscope rails --all lists them)\n", strings.Join(parts, ", "))
	}
}

// characterDevices returns the devices of all rails, each once.
func (l List) characterDevices() (nodes []string) {
	for _, r := range l.Rails {
		nodes = append(nodes, r.CharacterDevices...)
	}
	return rdmadev.Sort(nodes)
}

func dash(s string) string { return cmp.Or(s, "-") }

func number(n, least int) string {
	if n < least {
		return "-"
	}
	return strconv.Itoa(n)
}

func gigabits(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "-"
	}
	return strconv.FormatFloat(bytesPerSecond*8/1e9, 'f', 1, 64) + " Gb/s"
}

func address(gid string) string {
	a, err := netip.ParseAddr(gid)
	if err != nil {
		return gid
	}
	return a.Unmap().String()
}
