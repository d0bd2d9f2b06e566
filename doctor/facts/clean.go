package facts

import (
	"net/netip"
	"reflect"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// Bounds on texts from outside, in bytes, and on lists that a peer sends.
const (
	maxText     = 256 // of a value that the kernel, a file or a process has
	maxPeerText = 1024
	maxPeerList = 4096
)

// Clean makes a text from outside fit to be shown: at most maxText bytes, and
// U+FFFD for what would steer a terminal or cannot be seen. A blank there could
// turn one name into another.
func Clean(s string) string { return clip(s, maxText) }

func clip(s string, most int) string {
	s = Printable(s[:min(len(s), most)])
	return strings.ToValidUTF8(s[:min(len(s), most)], "") // an invalid byte has become three
}

// Printable is Clean without a bound.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if terminal.Shown(c) {
			return c
		}
		return '\uFFFD'
	}, s)
}

// clean makes what a peer sent fit to be judged and printed, because people
// paste findings into a shell. Names in any script stay what they are, so that
// rails of one name still meet.
func (f *Facts) clean() { cleanValue(reflect.ValueOf(f).Elem()) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		switch a := v.Interface().(type) {
		case netip.Addr:
			v.Set(reflect.ValueOf(a.WithZone(""))) // a zone may be any text, and no GID has one
			return
		}
		for _, field := range v.Fields() {
			if field.CanSet() { // the private ones of time.Time and netip.Prefix hold no text of a peer's
				cleanValue(field)
			}
		}
	case reflect.Slice:
		if v.Len() > maxPeerList {
			v.Set(v.Slice(0, maxPeerList))
		}
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map: // only of strings
		for _, key := range v.MapKeys() {
			value := v.MapIndex(key).String()
			v.SetMapIndex(key, reflect.Value{})
			if v.Len() < maxPeerList {
				v.SetMapIndex(reflect.ValueOf(clip(key.String(), maxPeerText)),
					reflect.ValueOf(clip(value, maxPeerText)))
			}
		}
	case reflect.String:
		v.SetString(clip(v.String(), maxPeerText))
	default: // numbers and truth values are what they are
	}
}
