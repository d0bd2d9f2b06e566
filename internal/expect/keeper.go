package expect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/units"
)

// A value counts as seen if two consecutive observations have it. The second observation follows soon after the
// first.
const (
	secondAfter  = 10 * time.Second
	observeEvery = time.Minute
)

// Options configure a [Keeper].
type Options struct {
	Sysfs  string // mount point
	Find   func() rail.Snapshot
	Config Config
	Budget time.Duration // maximum wait for one device

	Memory Memory       // memory of an earlier process, accepted by [Memory.Check]
	Save   func(Memory) // receives each changed memory; must not block; nil: the memory ends with the process
	// Forget makes the finder forget a missing rail by name, and reports whether there was one; optional.
	Forget func(name string) bool
}

// Keeper remembers the best values seen of this node's rails and GPUs. Safe for concurrent use.
type Keeper struct {
	opts  Options
	lanes lane.Group[Now]
	nodes lane.Group[gpuList]

	mu     sync.Mutex // protects all following fields
	config Config
	memory Memory
	last   map[string]reading // last observation, by rail ID and port
	gpus   []string           // PCI addresses at the last observation
}

// Now holds the current values of a rail. Values that are unknown or meaningless are 0.
type Now struct {
	Active bool
	Rate   float64 // bytes per second
	Link   rail.Link
	MTU    int // RoCE MTU, bytes
	Err    error
}

type gpuList struct {
	addresses []string
	err       error
}

// New returns a keeper.
func New(o Options) *Keeper {
	return &Keeper{opts: o, config: o.Config, memory: o.Memory, last: map[string]reading{}}
}

// Configure sets the configured expectations.
func (k *Keeper) Configure(c Config) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.config = c
}

// Run observes periodically until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	for wait := secondAfter; ; wait = observeEvery {
		k.Observe()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Observe reads the rails and GPUs once, remembers better values, and returns the rails with their state.
func (k *Keeper) Observe() ([]rail.Rail, []Now) {
	snap := k.opts.Find()
	now := k.read(snap.Rails)
	gpus := k.nodes.Run(k.opts.Budget, []string{"GPUs"}, func(string) gpuList {
		addresses, err := presentGPUs(k.opts.Sysfs)
		return gpuList{addresses, err}
	})[0]
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.last
	k.last = map[string]reading{}
	seen := make([]reading, len(snap.Rails))
	for i, r := range snap.Rails {
		id := r.ID + "/" + fmt.Sprint(r.Port)
		is := reading{now[i].Rate, now[i].Link, now[i].MTU}
		if !now[i].Active {
			is = reading{}
		}
		k.last[id], seen[i] = is, is.common(before[id])
	}
	at := time.Now().UTC().Truncate(time.Second)
	changed := k.memory.learn(snap.Rails, seen, at)
	if gpus.State == lane.Done && gpus.Value.err == nil {
		seenTwice := slices.Equal(k.gpus, gpus.Value.addresses)
		k.gpus = gpus.Value.addresses
		if seenTwice {
			changed = k.memory.learnGPUs(k.gpus, at) || changed
		}
	}
	if changed {
		k.saveLocked()
	}
	return snap.Rails, now
}

func (k *Keeper) saveLocked() {
	if k.opts.Save != nil {
		k.opts.Save(k.memory)
	}
}

// read reads each rail in its lane.
func (k *Keeper) read(rails []rail.Rail) []Now {
	names, byName := make([]string, len(rails)), map[string]rail.Rail{}
	for i, r := range rails {
		names[i], byName[r.Name] = r.Name, r
	}
	list := make([]Now, len(rails))
	for i, res := range k.lanes.Run(k.opts.Budget, names, func(name string) Now {
		return readRail(k.opts.Sysfs, byName[name])
	}) {
		list[i] = res.Value
		if res.Err != nil {
			list[i] = Now{Err: fmt.Errorf("%s: %w", rails[i], res.Err)}
		}
	}
	return list
}

func readRail(sysfsRoot string, r rail.Rail) (n Now) {
	port := rail.NewPort(sysfsRoot, r, nil)
	defer port.Close()
	state, err := port.State()
	n.Active = err == nil && state == rail.StateActive
	if n.Active {
		n.Rate, err = port.Rate() // meaningless if the port is not active
	}
	var errLink, errMTU error
	n.Link, errLink = port.Link()
	if errors.Is(errLink, rail.ErrNoLink) || missing(errLink) {
		errLink = nil
	}
	_, n.MTU, errMTU = port.MTU()
	if missing(errMTU) {
		errMTU = nil
	}
	n.Err = errors.Join(err, errLink, errMTU)
	return n
}

// missing reports whether err means that a captured tree, or the driver, lacks a file.
func missing(err error) bool {
	return sysfs.Reason(err) == sysfs.ReasonVanished || sysfs.Reason(err) == sysfs.ReasonUnsupported
}

// presentGPUs returns the PCI addresses of the GPUs on PCI, sorted.
func presentGPUs(sysfsRoot string) (addresses []string, err error) {
	list, err := rail.GPUs(sysfsRoot)
	for _, g := range list {
		addresses = append(addresses, g.PCIAddress)
	}
	return addresses, err
}

// Expected returns the expectations of the rails, in their order.
func (k *Keeper) Expected(rails []rail.Rail) []Rail {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.memory.expected(k.config, rails)
}

// Node returns the expectations of the node that the finder sees.
func (k *Keeper) Node() (n Node) {
	snap := k.opts.Find()
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := len(snap.Rails) + len(snap.Missing); known > 0 {
		n.Rails = Figure[int]{Value: known, Source: BestSeen}
	}
	if k.config.Rails > 0 {
		n.Rails = Figure[int]{Value: k.config.Rails, Source: Configured}
	}
	if g := k.memory.GPUs; g != nil {
		n.GPUAddresses = slices.Clone(g.Value)
		n.GPUs = Figure[int]{Value: len(g.Value), Source: BestSeen, Since: g.Since, Last: g.Last}
	}
	if k.config.GPUs > 0 {
		n.GPUs = Figure[int]{Value: k.config.GPUs, Source: Configured}
	}
	return n
}

// ErrUnknown is returned, always wrapped, if no rail has the name.
var ErrUnknown = errors.New("no such rail")

// ResetGPUs is the name by which [Keeper.Reset] forgets the GPUs, unless a rail has that name.
const ResetGPUs = "gpus"

// Reset forgets the best values of a rail by its current name; a missing rail is forgotten completely. By
// [ResetGPUs], it forgets the GPUs. It returns a description of what was forgotten.
func (k *Keeper) Reset(name string) (forgotten string, err error) {
	snap := k.opts.Find()
	present := slices.IndexFunc(snap.Rails, func(r rail.Rail) bool { return r.Name == name })
	gone := slices.IndexFunc(snap.Missing, func(m rail.Missing) bool { return m.Name == name })
	switch {
	case present >= 0:
		return k.resetPresent(snap.Rails, present), nil
	case gone >= 0:
		return k.resetMissing(snap.Missing[gone])
	case name == ResetGPUs:
		return k.resetGPUs(), nil
	}
	var names []string
	for _, r := range snap.Rails {
		names = append(names, r.Name)
	}
	for _, m := range snap.Missing {
		names = append(names, m.Name+" (missing)")
	}
	return "", fmt.Errorf("%w: %q; there are: %s", ErrUnknown, name, strings.Join(append(names, ResetGPUs), ", "))
}

func (k *Keeper) resetPresent(rails []rail.Rail, i int) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, _ := k.memory.find(rails)
	p := known[i]
	if p == nil {
		return rails[i].String() + ": nothing was remembered"
	}
	text := rails[i].String() + ": " + p.String()
	k.remove(p)
	return text
}

func (k *Keeper) resetMissing(m rail.Missing) (string, error) {
	text := fmt.Sprintf("rail %s (%s, missing)", m.Name, rail.Key(m.Device, m.Port))
	forgotten := k.opts.Forget != nil && k.opts.Forget(m.Name)
	still := slices.ContainsFunc(k.opts.Find().Missing, func(o rail.Missing) bool { return o.Name == m.Name })
	if still || !forgotten {
		return "", fmt.Errorf("rail %s is missing, and rails.names has its name: remove it there and reload", m.Name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.memory.Ports, func(p Port) bool {
		return m.PCIAddress != "" && p.PCIAddress == m.PCIAddress && p.Port == m.Port
	})
	if i >= 0 {
		text += ": " + k.memory.Ports[i].String()
		k.remove(&k.memory.Ports[i])
	}
	return text, nil
}

// remove is called with mu held.
func (k *Keeper) remove(p *Port) {
	k.memory.Ports = slices.DeleteFunc(slices.Clone(k.memory.Ports), func(o Port) bool { return o == *p })
	k.saveLocked()
}

func (k *Keeper) resetGPUs() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.memory.GPUs == nil {
		return "GPUs: nothing was remembered"
	}
	text := fmt.Sprintf("%d GPUs", len(k.memory.GPUs.Value))
	k.memory.GPUs = nil
	k.saveLocked()
	return text
}

// String describes what is remembered, for people.
func (p *Port) String() string {
	var parts []string
	if p.Rate != nil {
		parts = append(parts, units.Gigabits(p.Rate.Value))
	}
	if p.Link != nil {
		parts = append(parts, "PCIe "+LinkText(p.Link.Value))
	}
	if p.MTU != nil {
		parts = append(parts, fmt.Sprint("MTU ", p.MTU.Value))
	}
	return strings.Join(parts, ", ")
}
