package rtnl

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

const classNet = "/sys/class/net"

// files returns the files whose numbers a link has.
func files() []string {
	list := []string{"carrier_changes", "carrier_down_count"}
	for _, name := range []string{"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors",
		"rx_dropped",
		"tx_dropped", "multicast", "rx_crc_errors", "rx_missed_errors", "tx_carrier_errors"} {
		list = append(list, "statistics/"+name)
	}
	return list
}

// TestLinks: for every interface of this machine, each number equals that of sysfs; counters may have increased
// between a read before and one after.
func TestLinks(t *testing.T) {
	var c Client
	defer c.Close()
	if err := c.open(); err != nil {
		t.Skip(err)
	}
	entries, err := sysfs.List(classNet)
	if err != nil || !sysfs.Live(classNet) {
		t.Skip("no sysfs", err)
	}
	names := []string{"not-there"}
	for range 2 * batch { // more than one batch
		for _, e := range entries {
			names = append(names, e.Name)
		}
	}
	read := func() map[string]uint64 {
		values := map[string]uint64{}
		for _, e := range entries {
			for _, f := range files() {
				if v, err := sysfs.ReadUint(classNet, e.Name, f); err == nil {
					values[filepath.Join(e.Name, f)] = v
				}
			}
		}
		return values
	}
	before := read()
	links, err := c.Links(names)
	if err != nil {
		t.Fatal(err)
	}
	after := read()
	compared := 0
	for _, e := range entries {
		l := links[e.Name]
		index, err := sysfs.ReadUint(classNet, e.Name, "ifindex")
		if err != nil || l == nil {
			continue // not an interface, or in another network namespace
		}
		address, _ := sysfs.ReadString(classNet, e.Name, "address")
		if l.Index != int(index) || l.Address != address && l.Address != "" {
			t.Errorf("%s: %+v, sysfs has %d, %q", e.Name, l, index, address)
		}
		for _, f := range files() {
			low, there := before[filepath.Join(e.Name, f)]
			i, known := Index(f)
			if !known {
				t.Fatal(f)
			}
			v, ok := l.Number(i)
			if ok != there || v < low || v > after[filepath.Join(e.Name, f)] {
				t.Errorf("%s/%s: %d, %v; the file had %d, %v and then %d", e.Name, f, v, ok, low, there,
					after[filepath.Join(e.Name, f)])
			}
			compared++
		}
		state, _ := sysfs.ReadString(classNet, e.Name, "operstate")
		if (state == "up") != (l.OperState == OperUp) || (state == "unknown") != (l.OperState == OperUnknown) {
			t.Errorf("%s: operational state %d, sysfs has %s", e.Name, l.OperState, state)
		}
	}
	if compared == 0 || links["not-there"] != nil {
		t.Errorf("%d numbers compared; not-there: %+v", compared, links["not-there"])
	}
}

// FuzzDecode: decoding any answer ends, with a link or an error.
func FuzzDecode(f *testing.F) {
	f.Add(request("eth0").Data)
	f.Add([]byte("\x00\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x04\x00\xdc\x05\x00\x00"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		l, err := decode(msg)
		if l != nil && err != nil {
			t.Errorf("%v and %v", l, err)
		}
		if l != nil {
			_ = fmt.Sprint(l.Number(statistics))
		}
	})
}
