package facts

import "github.com/railscope/railscope/internal/sysfs"

// The seams of tests outside of the package.

const (
	MaxEnvs        = maxEnvs
	MaxValue       = maxValue
	MaxUnread      = maxUnread
	MaxPeerText    = maxPeerText
	MaxLibraryDirs = maxLibraryDirs
	EnvironReaders = environReaders
)

// ReadEnviron is what reads environments, until SetEnviron replaces it.
var ReadEnviron = readEnviron

func (g *Gatherer) SetEnviron(f func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error)) {
	g.environ = f
}

// OnList is called for each directory of libraries that is listed.
func (g *Gatherer) OnList(f func(dir string)) {
	g.libraries.list = func(dir string) ([]sysfs.Entry, error) {
		f(dir)
		return sysfs.List(dir)
	}
}
