// Package nlattr reads the attributes of netlink messages. Unlike a library's decoder it does not allocate.
package nlattr

import (
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// ErrSize is returned for an attribute with a wrong size.
var ErrSize = errors.New("an attribute of the wrong size")

// All yields the attributes of b with their types. It stops at a malformed one, for which it sets err, and when err
// is set.
func All(b []byte, err *error) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) > 0 && *err == nil {
			length := 0
			if len(b) >= unix.SizeofNlAttr {
				length = int(binary.NativeEndian.Uint16(b))
			}
			if length < unix.SizeofNlAttr || length > len(b) {
				*err = ErrSize
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(typ, b[unix.SizeofNlAttr:length]) {
				return
			}
			b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

// Of yields the values of one type; see [All].
func Of(b []byte, typ uint16, err *error) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for t, value := range All(b, err) {
			if t == typ && !yield(value) {
				return
			}
		}
	}
}

// Last returns the last value of one type, or nil if there is none; see [All].
func Last(b []byte, typ uint16, err *error) (value []byte) {
	for v := range Of(b, typ, err) {
		value = v
	}
	return value
}

// Uint returns a number of 4 or 8 bytes (nla_put_uint writes the shorter one that fits). Another size is an error.
func Uint(value []byte, err *error) uint64 {
	switch {
	case *err != nil:
	case len(value) == 4:
		return uint64(binary.NativeEndian.Uint32(value))
	case len(value) == 8:
		return binary.NativeEndian.Uint64(value)
	default:
		*err = ErrSize
	}
	return 0
}
