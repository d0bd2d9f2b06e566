// Package facts reads, once, everything that doctor's checks judge: the rails of
// a node, the system around them, and what jobs set for them. A [Gatherer] reads
// the facts of this node; a peer's come as JSON over the probe's control channel
// ([Parse]). Nothing here has an opinion.
package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version is the version of the JSON form of [Facts].
const Version = 1

// Facts is what was read of one node. What could not be read is its zero value,
// and Unread says why.
type Facts struct {
	Version int       `json:"version"` // of this form; peers that speak another one are not compared
	Node    string    `json:"node"`
	At      time.Time `json:"at"` // by the node's own wall clock
	Network `json:"rails"`
	System  `json:"system"`
	Unread  []string `json:"unread"` // what could not be read, why, and what to do about it
}

// ErrVersion says that a peer's facts have another version.
var ErrVersion = errors.New("unknown version of facts")

// wire is the JSON form, in which kind and provider of the rails are a list of
// their own.
type wire Facts

// MarshalJSON writes the form that peers read.
func (f Facts) MarshalJSON() ([]byte, error) {
	out := wire(f)
	for i := range out.Rails[:min(len(out.Rails), maxPorts)] {
		r := &out.Rails[i]
		out.Ports = append(out.Ports, port{r.Name, r.Device, r.Port, r.Netdev, r.LinkLayer, r.Active(), r.Kind,
			r.Provider})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads it.
func (f *Facts) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*wire)(f)); err != nil {
		return err
	}
	for _, p := range f.Ports[:min(len(f.Ports), maxPorts)] {
		for i := range f.Rails {
			if r := &f.Rails[i]; r.Device == p.Device && r.Port == p.Port {
				r.Kind, r.Provider = p.Kind, p.Provider
			}
		}
	}
	f.Ports = nil
	return nil
}

// Parse reads the facts of a peer. Facts of another version fail with
// [ErrVersion], wrapped. Texts in them are made fit for a terminal, and lists
// have a length that the checks can bear; nothing else in them is to be trusted.
func Parse(data []byte) (*Facts, error) {
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("the peer's answer is not facts of railscope: %w", err)
	}
	if form.Version != Version {
		return nil, fmt.Errorf("%w: the peer speaks version %d, this node %d", ErrVersion, form.Version, Version)
	}
	f := &Facts{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("the peer's answer is not facts of railscope: %w", err)
	}
	if err := f.bounded(); err != nil {
		return nil, fmt.Errorf("the peer's facts are out of bounds: %w", err)
	}
	f.Unread = f.Unread[:min(len(f.Unread), maxUnread)]
	f.clean()
	if f.Node == "" {
		f.Node = "peer"
	}
	return f, nil
}
