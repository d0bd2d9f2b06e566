package doctor

import (
	"net/netip"
	"reflect"
	"strings"
)

// Bounds on what a peer may claim of itself.
const (
	maxPeerList = 4096
	maxPeerText = 1024 // bytes
)

// sanitize makes what a peer sent fit to be judged and printed: texts printable
// and not long, lists not long. Whatever is in a finding about a peer passed
// here, because people paste findings into a shell. Names that people chose in
// any script stay what they are, so that rails of one name still meet.
func (f *SystemFacts) sanitize() { sanitize(reflect.ValueOf(f)) }

func (f *RailFacts) sanitize() { sanitize(reflect.ValueOf(f)) }

func sanitize(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			sanitize(v.Elem())
		}
	case reflect.Struct:
		switch a := v.Interface().(type) {
		case netip.Addr:
			v.Set(reflect.ValueOf(a.WithZone(""))) // a zone may be any text, and no GID has one
			return
		case netip.Prefix: // has no zone
			return
		}
		for _, field := range v.Fields() {
			sanitize(field)
		}
	case reflect.Slice:
		if v.Len() > maxPeerList {
			v.Set(v.Slice(0, maxPeerList))
		}
		for i := range v.Len() {
			sanitize(v.Index(i))
		}
	case reflect.Map: // only of strings
		for _, key := range v.MapKeys() {
			value := v.MapIndex(key).String()
			v.SetMapIndex(key, reflect.Value{})
			if v.Len() < maxPeerList {
				v.SetMapIndex(reflect.ValueOf(short(key.String())), reflect.ValueOf(short(value)))
			}
		}
	case reflect.String:
		v.SetString(short(v.String()))
	default: // numbers and truth values are what they are
	}
}

func short(s string) string {
	s = printable(s[:min(len(s), maxPeerText)])
	return strings.ToValidUTF8(s[:min(len(s), maxPeerText)], "") // an invalid byte has become three
}
