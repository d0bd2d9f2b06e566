package expect

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

// List is the output of `railscope expect`.
type List struct {
	Rows     []Row    `json:"rows"`
	Missing  []string `json:"missing"`  // rails
	Problems []string `json:"problems"` // errors of reads
}

// Row is one attribute with its expected value. Unknown values are absent.
type Row struct {
	Subject    string `json:"subject"`          // "rail 3", "node"
	Device     string `json:"device,omitempty"` // RDMA device of a rail
	PCIAddress string `json:"pci_address,omitempty"`
	Attribute  string `json:"attribute"` // rails: rate, pcie, mtu; node: rails, gpus

	Now      string  `json:"now,omitempty"`
	Expected string  `json:"expected,omitempty"`
	NowValue float64 `json:"now_value,omitempty"` // bytes per second, bytes, or a number
	Value    float64 `json:"expected_value,omitempty"`

	Lost   bool      `json:"lost"` // the current value is below the expected one
	Source Source    `json:"source,omitempty"`
	Since  time.Time `json:"since,omitzero"` // only for the best seen: when it was first seen
	Last   time.Time `json:"last,omitzero"`  // when it was last seen, to the day
	Why    string    `json:"why"`
}

// List reads the rails, and compares them with the expectations.
func (k *Keeper) List() List {
	rails, now := k.Observe()
	l := List{Rows: []Row{}, Missing: []string{}, Problems: []string{}}
	expected := k.Expected(rails)
	for i, r := range rails {
		l.addRail(r, now[i], expected[i])
	}
	for _, m := range k.opts.Find().Missing {
		l.Missing = append(l.Missing, fmt.Sprintf("rail %s (%s at %s)", m.Name, rail.Key(m.Device, m.Port),
			cmp.Or(m.PCIAddress, "-")))
	}
	node := k.Node()
	gpus, err := presentGPUs(k.opts.Sysfs)
	l.problem(err)
	count := func(n int) string { return fmt.Sprint(n) }
	l.Rows = append(l.Rows, row(Row{Subject: "node", Attribute: "rails"}, len(rails), node.Rails, count, number),
		row(Row{Subject: "node", Attribute: "gpus"}, len(gpus), node.GPUs, count, number))
	return l
}

func number(n int) float64 { return float64(n) }

func (l *List) addRail(r rail.Rail, now Now, e Rail) {
	about := Row{Subject: "rail " + r.Name, Device: rail.Key(r.Device, r.Port), PCIAddress: r.PCIAddress}
	switch {
	case !Hardware(r):
		about.Why = "nothing is expected of a software device"
	case !now.Active:
		about.Why = "not seen yet: the port is not active"
	default:
		about.Why = "not seen yet"
	}
	same := func(v float64) float64 { return v }
	for _, of := range []struct {
		name string
		row  func(Row) Row
	}{
		{"rate", func(about Row) Row { return row(about, now.Rate, e.Rate, units.Gigabits, same) }},
		{"pcie", func(about Row) Row { return row(about, now.Link, e.Link, LinkText, rail.Link.BytesPerSecond) }},
		{"mtu", func(about Row) Row {
			return row(about, now.MTU, e.MTU, func(n int) string { return fmt.Sprint(n) }, number)
		}},
	} {
		about.Attribute = of.name
		if one := of.row(about); one.Now != "" || one.Expected != "" {
			l.Rows = append(l.Rows, one)
		}
	}
	l.problem(now.Err)
}

func (l *List) problem(err error) {
	if err != nil {
		l.Problems = append(l.Problems, strings.Split(err.Error(), "\n")...)
	}
}

// row completes a row. A value of 0 is unknown.
func row[T comparable](r Row, now T, f Figure[T], text func(T) string, value func(T) float64) Row {
	var none T
	if now != none {
		r.Now, r.NowValue = text(now), value(now)
	}
	if f.Known() {
		r.Expected, r.Value, r.Why = text(f.Value), value(f.Value), f.Why()
		r.Source, r.Since, r.Last = f.Source, f.Since, f.Last
		counted := r.Subject == "node" // rows of the node have a number even if it is 0
		r.Lost = r.NowValue < r.Value && (r.Now != "" || counted)
	}
	return r
}

// WriteJSON writes the list as one JSON object.
func (l List) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, l)
}

// WriteTable writes the list as a table.
func (l List) WriteTable(w io.Writer) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SUBJECT\tDEVICE\tPCI\tWHAT\tNOW\tEXPECTED\t\tWHY")
	for _, r := range l.Rows {
		lost := ""
		if r.Lost {
			lost = "LOST"
		}
		fmt.Fprintln(t, terminal.Row(r.Subject, dash(r.Device), dash(r.PCIAddress), r.Attribute, dash(r.Now),
			dash(r.Expected), lost, r.Why))
	}
	_ = t.Flush() // b never fails
	for _, m := range l.Missing {
		fmt.Fprintln(&b, terminal.Plain(fmt.Sprint("Missing: ", m)))
	}
	for _, p := range l.Problems {
		fmt.Fprintln(&b, terminal.Plain(fmt.Sprint("Problem: ", p)))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func dash(s string) string { return cmp.Or(s, "-") }
