package lldp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// tlv returns a TLV as 8.4 describes it.
func tlv(kind int, value ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(kind<<9|len(value))), value...)
}

func text(kind int, subtype byte, s string) []byte {
	return tlv(kind, append([]byte{subtype}, s...)...)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestParse parses frames as the named systems send them, and damaged ones.
func TestParse(t *testing.T) {
	mac := text(1, 4, "\x1c\x34\xda\x00\x01\x02")
	ttl, end := tlv(3, 0, 120), tlv(0)
	for _, tc := range []struct {
		name  string
		frame []byte
		want  string // "name, port, TTL, station"; empty: refused
	}{
		{"Cumulus Linux", join(mac, text(2, 5, "swp7"), ttl, tlv(5, []byte("leaf-a")...), tlv(6, []byte("Cumulus")...),
			tlv(7, 0, 0x14, 0, 0x14), tlv(8, 5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 1, 0), tlv(4, []byte("to node 3")...), end),
			"leaf-a, swp7, 2m0s, false"},
		{"SONiC: a local port ID", join(mac, text(2, 7, "etp1"), ttl, tlv(4, []byte("Ethernet0")...),
			tlv(5, []byte("sonic")...), end), "sonic, Ethernet0, 2m0s, false"},
		{"Junos: a number", join(mac, text(2, 7, "514"), ttl, tlv(4, []byte("et-0/0/1")...), end),
			"1c:34:da:00:01:02, et-0/0/1, 2m0s, false"},
		{"a MAC as the port, without description", join(mac, text(2, 3, "\x1c\x34\xda\x00\x01\x03"), ttl, end),
			"1c:34:da:00:01:02, 1c:34:da:00:01:03, 2m0s, false"},
		{"an address as the chassis", join(text(1, 5, "\x01\x0a\x00\x00\x01"), text(2, 4, "\x01\x0a\x00\x00\x02"), ttl),
			"10.0.0.1, 10.0.0.2, 2m0s, false"},
		{"a host: station", join(mac, text(2, 3, "\x1c\x34\xda\x00\x01\x03"), ttl, tlv(5, []byte("node-2")...),
			tlv(7, 0, 0x9c, 0, 0x80), end), "node-2, 1c:34:da:00:01:03, 2m0s, true"},
		{"a host that forwards nothing", join(mac, text(2, 5, "eth0"), ttl, tlv(7, 0, 0x9c, 0, 0), end),
			"1c:34:da:00:01:02, eth0, 2m0s, true"},
		{"a bridge of VLANs", join(mac, text(2, 5, "1"), ttl, tlv(7, 2, 0, 2, 0), end), "1c:34:da:00:01:02, 1, 2m0s, false"},
		{"it stops", join(mac, text(2, 5, "swp7"), tlv(3, 0, 0), end), "1c:34:da:00:01:02, swp7, 0s, false"},
		{"without end, with a trailer", join(mac, text(2, 5, "swp7"), ttl, make([]byte, 30)),
			"1c:34:da:00:01:02, swp7, 2m0s, false"},
		{"what follows the end is not read", join(mac, text(2, 5, "swp7"), ttl, end, tlv(5, []byte("leaf-b")...)),
			"1c:34:da:00:01:02, swp7, 2m0s, false"},
		{"control characters and invalid UTF-8", join(mac, text(2, 5, "swp\x1b[31m7"), ttl,
			tlv(5, []byte("le\naf\xff\x00\x00")...)), "le_af_, swp_[31m7, 2m0s, false"},
		{"capabilities that are cut off", join(mac, text(2, 5, "swp7"), ttl, tlv(7, 0, 0x14, 0), end),
			"1c:34:da:00:01:02, swp7, 2m0s, false"},
		{"a TLV that is longer than the frame", join(mac, text(2, 5, "swp7"), ttl, []byte{0x0b, 0xff, 'x'}),
			"1c:34:da:00:01:02, swp7, 2m0s, false"},
		{"a name as the MAC", join(text(1, 4, "short"), text(2, 5, "swp7"), ttl), "short, swp7, 2m0s, false"},
		{"empty", nil, ""},
		{"half a header", []byte{2}, ""},
		{"no chassis", join(text(2, 5, "swp7"), ttl), ""},
		{"the wrong order", join(text(2, 5, "swp7"), mac, ttl), ""},
		{"an empty chassis", join(tlv(1, 4), text(2, 5, "swp7"), ttl), ""},
		{"a chassis of blanks", join(text(1, 7, " \x00"), text(2, 5, "swp7"), ttl), ""},
		{"a port of blanks", join(mac, text(2, 5, "  "), ttl), ""},
		{"a chassis ID that is too long", join(text(1, 7, strings.Repeat("x", 256)), text(2, 5, "swp7"), ttl), ""},
		{"no port", join(mac, ttl), ""},
		{"no TTL", join(mac, text(2, 5, "swp7"), end), ""},
		{"half a TTL", join(mac, text(2, 5, "swp7"), tlv(3, 0)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := Parse(tc.frame)
			got := ""
			if err == nil {
				got = fmt.Sprintf("%s, %s, %v, %t", n.Name(), n.PortName(), n.TTL, n.Station)
			}
			if got != tc.want {
				t.Errorf("%q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}

// FuzzParse: whatever a frame has, texts are short, valid and printable, and a neighbor has a name and a port.
func FuzzParse(f *testing.F) {
	f.Add(join(text(1, 4, "\x1c\x34\xda\x00\x01\x02"), text(2, 7, "etp1"), tlv(3, 0, 120), tlv(4, 'x'), tlv(5, 'y'),
		tlv(7, 0, 0x14, 0, 0x14), tlv(127, 0, 0x80, 0xc2, 1), tlv(0)))
	f.Add(join(text(1, 5, "\x02"+strings.Repeat("\xfe", 16)), text(2, 4, "\x01\x0a\x00\x00\x02"), tlv(3, 0, 0)))
	f.Add(tlv(1, make([]byte, 511)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Parse(b)
		if err != nil && n != (Neighbor{}) {
			t.Errorf("%+v and %v", n, err)
		}
		if err == nil && (n.Name() == "" || n.PortName() == "" || n.TTL < 0 || n.TTL > 65535*time.Second) {
			t.Errorf("%+v", n)
		}
		for _, s := range []string{n.Chassis, n.Port, n.System, n.About} {
			if len(s) > 3*255 || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
				return !unicode.IsPrint(r)
			}) {
				t.Errorf("text %q", s)
			}
		}
	})
}
