package sysfs

import "testing"

// FuzzDirents: for any bytes from the kernel, names are parts of them.
func FuzzDirents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08a\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\xff\xff\x08abc"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		for _, e := range appendEntries(nil, b) {
			total += len(e.Name)
			if e.Name == "." || e.Name == ".." {
				t.Errorf("%q is listed", e.Name)
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of names in %d bytes", total, len(b))
		}
	})
}
