package facts

import "time"

// This file exports internals for the tests outside of the package.

const (
	MaxEnvs        = maxEnvs
	MaxStuck       = maxStuck
	MaxValue       = maxValue
	MaxUnread      = maxUnread
	MaxPeerText    = maxPeerText
	MaxLibraryDirs = maxLibraryDirs
)

// ReadEnviron is the default reader of environments, which SetEnviron replaces.
var ReadEnviron = readEnviron

func (g *Gatherer) SetEnviron(f func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error)) {
	g.environ = f
}

// SearchAgain makes the next reading search for libraries again.
func (g *Gatherer) SearchAgain() { g.searched = time.Time{} }

// Space parses a configuration space.
func Space(b []byte) (deviceControl, acsControl uint16, express, acs bool) {
	deviceControl, express = pciSpace(b).deviceControl()
	acsControl, acs = pciSpace(b).acsControl()
	return deviceControl, acsControl, express, acs
}

// RunUCXInfo runs the ucx_info found in PATH.
var RunUCXInfo = runUCXInfo

// Limits of ucx_info.
const (
	UCXTime      = ucxTime
	MaxUCXOutput = maxUCXOutput
)
