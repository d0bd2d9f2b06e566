package facts

import "github.com/railscope/railscope/internal/proc"

// capIPCLock is CAP_IPC_LOCK of include/uapi/linux/capability.h.
const capIPCLock = 14

// readMemlock reads how much memory this process may lock, and whether it is exempt, which must both be known.
func (g *Gatherer) readMemlock(r *reader) func(*Facts) {
	r.at(g.o.Procfs, "self/limits")
	self, err := proc.Self(g.o.Procfs)
	if absent(err) && !g.kernel.Live {
		return nil
	}
	m := Memlock{Known: true}
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
	m.Exempt = set>>capIPCLock&1 == 1 && proc.FirstUsers(g.o.Procfs, self)
	return func(f *Facts) { f.Memlock = m }
}
