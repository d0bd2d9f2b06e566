// Package facts reads, once, everything that doctor's checks judge: the rails of a node, the system around them, and
// what jobs set for them. A [Gatherer] reads the facts of this node; a peer's arrive as JSON over the probe's control
// channel ([Parse]). Nothing here has an opinion.
package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// Version is the version of the JSON form of [Facts].
const Version = 2

// Facts is what was read of one node; what could not be is zero, and in Unread. The tag max bounds a peer's lists.
type Facts struct {
	Version int    `json:"version"` // of this form; peers with another one are not compared
	Node    string `json:"node"`
	Network `json:"rails"`
	System  `json:"system"`
	Unread  []string `json:"unread"` // what could not be read, why, and what to do about it
}

// ErrVersion says that a peer's facts have another version.
var ErrVersion = errors.New("unknown version of facts")

// Bounds on texts, in bytes, and on what a peer sends.
const (
	maxText     = 256 // of a value from the kernel, a file or a process
	maxPeerText = 1024
	maxPeerList = 4096 // of a list without the tag max
	maxUnread   = 256
)

// Parse reads the facts of a peer, cleaned and bounded, but not to be trusted. Another version fails with [ErrVersion].
func Parse(data []byte) (*Facts, error) {
	const invalid = "the peer sent invalid facts: %w"
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	if form.Version != Version {
		return nil, fmt.Errorf("%w: the peer speaks version %d, this node %d", ErrVersion, form.Version, Version)
	}
	f := &Facts{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	f.Unread = f.Unread[:min(len(f.Unread), maxUnread)]
	if err := sanitize(reflect.ValueOf(f).Elem(), "facts", maxPeerList); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	if f.Node == "" {
		f.Node = "peer"
	}
	return f, nil
}

// sanitize makes a peer's value safe to judge, to print and to paste into a shell: it cleans and cuts texts, drops
// maps, which no peer sends, and fails on a list of more than most values. Names in any script stay as they are, so
// that rails of one name still match.
func sanitize(v reflect.Value, name string, most int) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return sanitize(v.Elem(), name, most)
		}
	case reflect.Struct:
		if a, ok := reflect.TypeAssert[netip.Addr](v); ok {
			v.Set(reflect.ValueOf(a.WithZone(""))) // a zone may be any text, and no GID has one
			return nil
		}
		for field, value := range v.Fields() {
			most, err := strconv.Atoi(field.Tag.Get("max"))
			if err != nil {
				most = maxPeerList
			}
			if !value.CanSet() { // the private fields of netip.Prefix
				continue
			}
			if err := sanitize(value, strings.ToLower(field.Name), most); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if v.Len() > most {
			return fmt.Errorf("%d %s (limit %d)", v.Len(), name, most)
		}
		for i := range v.Len() {
			if err := sanitize(v.Index(i), name, maxPeerList); err != nil {
				return err
			}
		}
	case reflect.Map:
		v.SetZero()
	case reflect.String:
		v.SetString(clip(v.String(), maxPeerText))
	default: // numbers and booleans need no cleaning
	}
	return nil
}

// clean is [terminal.PlainName], cut to at most 256 bytes.
func clean(s string) string { return clip(s, maxText) }

func clip(s string, most int) string {
	s = terminal.PlainName(s[:min(len(s), most)])
	return strings.ToValidUTF8(s[:min(len(s), most)], "") // an invalid byte has become three
}
