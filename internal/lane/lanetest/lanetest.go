// Package lanetest runs tests of lanes in fake time.
package lanetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Test is [synctest.Test] that lets the goroutines of lanes end, which wait for
// the next call for a while: time stands still when f has returned.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Hour) // fake
		f(t)
	})
}
