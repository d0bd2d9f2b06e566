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

// Space parses a configuration space.
func Space(b []byte) (deviceControl, acsControl uint16, express, acs bool) {
	deviceControl, express = pciSpace(b).deviceControl()
	acsControl, acs = pciSpace(b).acsControl()
	return deviceControl, acsControl, express, acs
}

// RunUCXInfo runs the ucx_info of the PATH.
var RunUCXInfo = runUCXInfo

// The limits of ucx_info.
const (
	UCXTime      = ucxTime
	MaxUCXOutput = maxUCXOutput
)
