package facts

import (
	"strings"

	"github.com/railscope/railscope/internal/kernellog"
)

// readAdapterLog reads the last kernel message about each adapter without an RDMA device, if this process may read the
// kernel log. Nodes without such an adapter skip it.
func (g *Gatherer) readAdapterLog(n Network) work {
	dead := map[string]int{} // PCI address → index of the adapter
	for i, a := range n.Adapters {
		if !a.RDMA {
			dead[a.Address] = i
		}
	}
	if len(dead) == 0 {
		return nil
	}
	about := func(text string) (i int, found bool) {
		for address, i := range dead {
			if strings.Contains(text, address+": ") {
				return i, failed(text)
			}
		}
		return 0, false
	}
	return func(r *reader) func(*Facts) {
		const most = 64
		// Many hosts refuse access to the kernel log, so the error is ignored.
		list, _ := kernellog.Read(r.at(g.own("dev/kmsg")), most, func(rec kernellog.Record) bool {
			_, found := about(rec.Text)
			return found
		})
		return func(f *Facts) {
			for _, rec := range list {
				if i, found := about(rec.Text); found {
					f.Adapters[i].Log = clean(rec.Text)
				}
			}
		}
	}
}

// failed reports whether a message is about a failure (mlx5/core/main.c, bnxt.c, drivers/base/dd.c).
func failed(text string) bool {
	text = strings.ToLower(text)
	for _, word := range []string{"fail", "error", "fatal", "timeout", "unable", "not responding", "went down"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
