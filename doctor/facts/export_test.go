package facts

import "time"

// The seams of tests outside of the package.

const (
	MaxEnvs        = maxEnvs
	MaxStuck       = maxStuck
	MaxValue       = maxValue
	MaxUnread      = maxUnread
	MaxPeerText    = maxPeerText
	MaxLibraryDirs = maxLibraryDirs
)

// ReadEnviron is what reads environments, until SetEnviron replaces it.
var ReadEnviron = readEnviron

func (g *Gatherer) SetEnviron(f func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error)) {
	g.environ = f
}

// SearchAgain makes the next reading search for libraries.
func (g *Gatherer) SearchAgain() { g.searched = time.Time{} }
