// Package expect knows the expected properties of this node's rails: the configured ones, otherwise the best ever
// seen of each port. A link that trains at 100 Gb/s instead of 400 Gb/s lowers the rail's capacity, but not the
// expectation.
package expect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Config holds the configured expectations; 0: not configured.
type Config struct {
	Rails int     // number on this node
	Rate  float64 // rate of every port, bytes per second
	MTU   int     // RoCE MTU of every port, bytes
	GPUs  int     // number on this node
}

// Source is the origin of an expectation.
type Source string

// Sources; empty: nothing is expected.
const (
	Configured Source = "configured"
	BestSeen   Source = "best_seen"
)

// Figure is the expected value of one attribute.
type Figure[T any] struct {
	Value  T         `json:"value"`
	Source Source    `json:"source"`
	Since  time.Time `json:"since,omitzero"` // only for the best seen: when it was first seen
	Last   time.Time `json:"last,omitzero"`  // when it was last seen, to the day
}

// Known reports whether something is expected.
func (f Figure[T]) Known() bool { return f.Source != "" }

// Why returns the origin of the expectation, for people.
func (f Figure[T]) Why() string {
	switch {
	case f.Source == Configured:
		return "configured"
	case f.Source == BestSeen && f.Last.IsZero():
		return "remembered"
	case f.Source == BestSeen:
		return "best seen, " + f.period()
	}
	return ""
}

// Evidence returns a value with its origin, as findings write it: "400 Gb/s on 2026-11-20 (best seen)".
func (f Figure[T]) Evidence(value string) string {
	if f.Source == Configured {
		return value + " configured"
	}
	return value + " on " + f.Last.UTC().Format(time.DateOnly) + " (best seen)"
}

func (f Figure[T]) period() string {
	first, last := f.Since.UTC().Format(time.DateOnly), f.Last.UTC().Format(time.DateOnly)
	if first == last {
		return "on " + last
	}
	return first + " to " + last
}

// Rail holds the expectations of one rail.
type Rail struct {
	Rate Figure[float64]   `json:"rate"` // rate of its port, bytes per second
	Link Figure[rail.Link] `json:"pcie"`
	MTU  Figure[int]       `json:"mtu"` // RoCE MTU, bytes
	// WasUp is true if the port was seen up, also before the kernel started.
	WasUp bool `json:"was_up,omitempty"`
}

// Unused returns which ports were never up and need not be, like [rail.Unused]; ports that were seen up before are
// expected. uses and expected belong to the same rails; atLeast is [Node.ConfiguredRails].
func Unused(uses []rail.Use, expected []Rail, atLeast int) []bool {
	uses = slices.Clone(uses)
	for i, e := range expected {
		uses[i].Expected = uses[i].Expected || e.WasUp
	}
	return rail.Unused(uses, atLeast)
}

// Node holds the expectations of the whole node.
type Node struct {
	Rails Figure[int] `json:"rails"` // without a configured number: present and missing rails
	GPUs  Figure[int] `json:"gpus"`  // number on PCI
	// GPUAddresses are the PCI addresses of the GPUs when most of them were seen.
	GPUAddresses []string `json:"gpu_addresses,omitempty"`
}

// ConfiguredRails returns the number of rails that the configuration expects; 0: none.
func (n Node) ConfiguredRails() int {
	if n.Rails.Source == Configured {
		return n.Rails.Value
	}
	return 0
}

// LinkText formats a PCIe link for people.
func LinkText(l rail.Link) string { return fmt.Sprintf("%g GT/s x%d", l.GigaTransfers, l.Width) }

// Capacities returns what each rail should carry with all active rails under load, in bytes per second. It is like
// [rail.Capacities], with the expected port rate and PCIe link instead of lower current ones. For an inactive rail
// it returns the capacity that it would have if active; 0: nothing is expected or known.
func Capacities(rails []rail.Rail, limits []rail.Limits, expected []Rail) []float64 {
	raised := make([]rail.Limits, len(limits))
	for i, l := range limits {
		e := expected[i]
		switch e.Rate.Source {
		case Configured:
			l.Rate = e.Rate.Value
		case BestSeen:
			l.Rate = max(l.Rate, e.Rate.Value)
		}
		l.Link = max(l.Link, e.Link.Value.BytesPerSecond())
		if l.LinkKey == "" && rails[i].PCIAddress != "" {
			l.LinkKey = rail.LinkKey(rails[i].PCIAddress)
		}
		raised[i] = l
	}
	list := rail.Capacities(raised)
	for i := range raised {
		if !raised[i].Active {
			raised[i].Active = true
			list[i] = rail.Capacities(raised)[i]
			raised[i].Active = false
		}
		if raised[i].Rate == 0 || !Hardware(rails[i]) && !expected[i].Rate.Known() {
			list[i] = 0 // the rate of a software device is arbitrary
		}
	}
	return list
}

// Hardware reports whether the rail is an adapter's port, for which there are expectations without configuration.
func Hardware(r rail.Rail) bool { return !r.Software && r.PCIAddress != "" }

// Limits of what is remembered, and of what is read from a file.
const (
	maxPorts = 128
	maxGPUs  = 128
	maxText  = 128
	maxRate  = 1e6 * 125e6 // bytes per second; more than any port
	maxLanes = 32
)

// Seen is the best value seen of an attribute.
type Seen[T any] struct {
	Value T         `json:"value"`
	Since time.Time `json:"since"` // first seen
	Last  time.Time `json:"last"`  // last seen, to the day
}

func (s *Seen[T]) figure() (f Figure[T]) {
	if s == nil {
		return f
	}
	return Figure[T]{Value: s.Value, Source: BestSeen, Since: s.Since, Last: s.Last}
}

// Port is the memory of one port. It is written to the state directory.
type Port struct {
	Place      string `json:"place"` // see [rail.Rail.Place]
	Port       int    `json:"port"`
	NodeGUID   string `json:"node_guid,omitempty"` // only while no other device has the same GUID
	PCIAddress string `json:"pci_address"`
	// Bond is true if the port belonged to a bond's device, whose rate is not that of the function alone.
	Bond bool `json:"bond,omitempty"`

	Rate *Seen[float64]   `json:"rate,omitempty"` // bytes per second
	Link *Seen[rail.Link] `json:"pcie,omitempty"`
	MTU  *Seen[int]       `json:"mtu,omitempty"`
}

// Memory holds the best values seen on this node.
type Memory struct {
	Ports []Port          `json:"ports"`
	GPUs  *Seen[[]string] `json:"gpus,omitempty"` // PCI addresses
}

// Check validates a memory that was read from a file.
func (m Memory) Check() error {
	if len(m.Ports) > maxPorts {
		return fmt.Errorf("%d ports; at most %d are allowed", len(m.Ports), maxPorts)
	}
	for i, p := range m.Ports {
		if err := p.check(); err != nil {
			return fmt.Errorf("port %d of the list: %w", i+1, err)
		}
	}
	if m.GPUs == nil {
		return nil
	}
	if n := len(m.GPUs.Value); n > maxGPUs {
		return fmt.Errorf("%d GPUs; at most %d are allowed", n, maxGPUs)
	}
	return checkTexts(m.GPUs.Value...)
}

func (p Port) check() error {
	switch {
	case p.Place == "" || p.Port < 1 || p.Port > 255:
		return errors.New("no place or port")
	case p.Rate != nil && !(p.Rate.Value > 0 && p.Rate.Value <= maxRate):
		return fmt.Errorf("invalid rate %v", p.Rate.Value)
	case p.MTU != nil && (p.MTU.Value < 256 || p.MTU.Value > 4096):
		return fmt.Errorf("invalid MTU %d", p.MTU.Value)
	case p.Link != nil && !(p.Link.Value.GigaTransfers > 0 && p.Link.Value.GigaTransfers <= 1024 &&
		p.Link.Value.Width > 0 && p.Link.Value.Width <= maxLanes):
		return fmt.Errorf("invalid PCIe link %v", p.Link.Value)
	}
	return checkTexts(p.Place, p.NodeGUID, p.PCIAddress)
}

func checkTexts(texts ...string) error {
	for _, text := range texts {
		unprintable := func(c rune) bool { return c < ' ' || c > '~' }
		if len(text) > maxText || strings.ContainsFunc(text, unprintable) {
			return fmt.Errorf("invalid text %.40q", text)
		}
	}
	return nil
}
