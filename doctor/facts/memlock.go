package facts

import (
	"path/filepath"

	"github.com/railscope/railscope/internal/proc"
)

// capIPCLock is CAP_IPC_LOCK of include/uapi/linux/capability.h.
const capIPCLock = 14

// readMemlock reads how much memory this process may lock. A limit counts only
// for who is not exempt from it, so all of it must be read.
func (g *Gatherer) readMemlock(r *reader) func(*Facts) {
	limits := filepath.Join(g.o.Procfs, "self/limits")
	r.at.Store(&limits)
	self, err := proc.Self(g.o.Procfs)
	if absent(err) && !g.kernel.Live {
		return nil
	}
	var m Memlock
	if err == nil {
		m.Soft, m.Hard, err = proc.LockedMemory(g.o.Procfs, self)
	}
	var set uint64
	if err == nil {
		set, err = proc.Capabilities(g.o.Procfs, self)
	}
	if err != nil {
		r.say("limits on locked memory: %v; compare with `ulimit -l`", err)
		return nil
	}
	m.Known = true
	m.Exempt = set>>capIPCLock&1 == 1 && proc.FirstUsers(g.o.Procfs, self)
	return func(f *Facts) { f.Memlock = m }
}
