package gpu

import (
	"testing"
)

func TestPCIAddress(t *testing.T) {
	for _, tt := range []struct{ busID, want string }{
		{"00000000:1A:00.0", "0000:1a:00.0"},
		{"0000000F:01:00.0", "000f:01:00.0"},
		{"0000:89:00.0", "0000:89:00.0"},
		{"00010000:3D:00.0", "10000:3d:00.0"},
		{"", ""},
		{"1A:00.0", ""},
		{"G:01:00.0", ""},
		{"00000000:1A:00", ""},
		{"100000000:1A:00.0", ""},
		{"0000:zz:00.0", ""},
	} {
		got, err := pciAddress(tt.busID)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("pciAddress(%q) = %q, %v; want %q", tt.busID, got, err, tt.want)
		}
	}
}
