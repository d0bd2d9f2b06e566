//go:build !race

package sampler

// raced reports whether the race detector is enabled.
const raced = false
