package storage

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/suite"
)

func readInterfaces(root string) map[string]suite.Interface {
	found := map[string]suite.Interface{}
	dirs, _ := filepath.Glob(filepath.Join(root, "class/net/*"))
	for _, dir := range dirs {
		rdma, _ := filepath.Glob(filepath.Join(dir, "device/infiniband/*"))
		name := filepath.Base(dir)
		sent, err1 := readCounter(dir, "tx_bytes")
		received, err2 := readCounter(dir, "rx_bytes")
		if err1 == nil && err2 == nil {
			found[name] = suite.Interface{Name: name, Sent: sent, Received: received, Rail: len(rdma) > 0}
		}
	}
	return found
}

func readCounter(dir, name string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, "statistics", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// carried returns the interfaces with traffic, the busiest first.
func carried(before, after map[string]suite.Interface) []suite.Interface {
	result := []suite.Interface{}
	for name, a := range after {
		b, ok := before[name]
		a.Sent, a.Received = a.Sent-b.Sent, a.Received-b.Received
		if ok && a.Sent >= 0 && a.Received >= 0 && a.Sent+a.Received > 0 {
			result = append(result, a)
		}
	}
	slices.SortFunc(result, func(a, b suite.Interface) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), cmp.Compare(a.Name, b.Name))
	})
	return result
}
