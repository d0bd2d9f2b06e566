//go:build race

package sampler

// raced is whether the race detector is on.
const raced = true
