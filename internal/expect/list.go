package expect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// List is the output of `railscope expect`.
type List struct {
	Rows     []Row    `json:"rows"`
	Missing  []string `json:"missing"`  // rails
	Problems []string `json:"problems"` // what could not be read
}

// Row is one attribute: what it is, and what it should be. What is unknown is absent.
type Row struct {
	Subject    string `json:"subject"`          // "rail 3", "node"
	Device     string `json:"device,omitempty"` // of a rail
	PCIAddress string `json:"pci_address,omitempty"`
	Attribute  string `json:"attribute"` // rate, pcie, mtu; of the node rails, gpus

	Now      string  `json:"now,omitempty"`
	Expected string  `json:"expected,omitempty"`
	NowValue float64 `json:"now_value,omitempty"` // bytes per second, bytes, or a number
	Value    float64 `json:"expected_value,omitempty"`

	Lost   bool      `json:"lost"` // it is less than expected
	Source Source    `json:"source,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of the best seen: when it was first seen
	Last   time.Time `json:"last,omitzero"`  // when it was last seen, to the day
	Why    string    `json:"why"`
}

// List reads the rails, and compares them with what is expected.
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
	gpus, err := nvidiaGPUs(k.opts.Sysfs)
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
		{"rate", func(about Row) Row { return row(about, now.Rate, e.Rate, GigabitsPerSecond, same) }},
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
		counted := r.Subject == "node" // of which none is a number
		r.Lost = r.NowValue < r.Value && (r.Now != "" || counted)
	}
	return r
}

// WriteJSON writes the list as one JSON object.
func (l List) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(l)
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
		fmt.Fprintln(t, strings.Join([]string{r.Subject, dash(r.Device), dash(r.PCIAddress), r.Attribute, dash(r.Now),
			dash(r.Expected), lost, r.Why}, "\t"))
	}
	_ = t.Flush() // b takes everything
	for _, m := range l.Missing {
		fmt.Fprintf(&b, "Missing: %s\n", m)
	}
	for _, p := range l.Problems {
		fmt.Fprintf(&b, "Problem: %s\n", p)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func dash(s string) string { return cmp.Or(s, "-") }
