// Package lanetest runs tests of lanes in fake time.
package lanetest

import (
	"testing"
	"testing/synctest"
	"time"
)

// Test is like [synctest.Test]. At the end it lets the lanes' idle goroutines exit: they wait for another call for
// a while, and time stops when f has returned.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Hour) // fake time
		f(t)
	})
}
