package facts_test

import (
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// FuzzSpace: parsing an arbitrary configuration space takes bounded time.
func FuzzSpace(f *testing.F) {
	whole := doctortest.ConfigSpace(0x2910, 0x5d)
	if control, acs, express, has := facts.Space([]byte(whole)); control != 0x2910 || acs != 0x5d || !express || !has {
		f.Fatal(control, acs, express, has)
	}
	if _, _, express, has := facts.Space([]byte(whole[:256])); !express || has {
		f.Fatal("a conventional PCI function", express, has)
	}
	f.Add([]byte(whole))
	f.Add([]byte(whole[:64]))
	f.Add([]byte(whole[:0x14f]))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, acs, _, has := facts.Space(b)
		if !has && acs != 0 || has && len(b) < 0x100+8 {
			t.Error(acs, has)
		}
	})
}
