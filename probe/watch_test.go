package probe

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestDevicesStayOpen: while the probe runs, the devices of the rails are open and their events are received: nothing
// but a context each, and none during maintenance, after SIGHUP, without the option, and after the end.
func TestDevicesStayOpen(t *testing.T) {
	p := preparePair(t, 2, nil)
	var maintenance, letGo atomic.Bool
	events := make(chan string, 10)
	p.a.Opts.Maintenance = maintenance.Load
	s := NewService(p.a, func(result.Result) {}, quiet(options.Events{LetGo: letGo.Load,
		Device: func(device string, port int, event string, n uint64) {
			events <- fmt.Sprint(device, "/", port, " ", event, " ", n)
		}}))
	t.Cleanup(s.Close)
	open := func(when string, want int) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			left := p.fabric.Left()
			if len(left) == want && strings.Count(strings.Join(left, "\n"), ": context ") == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q are open, want %d contexts", when, left, want)
			}
		}
	}
	apply := func(opts *options.Options) {
		t.Helper()
		if err := s.Apply(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
	}
	opts := p.opts
	opts.Listen = freeAddress()
	apply(&opts)
	open("at the start", 2)
	for received := false; !received; { // an event that is raised while the device is being opened is lost
		p.fabric.Raise("a", "mlx5_1", fakeverbs.EventGIDChange)
		select {
		case got := <-events:
			received = true
			if !strings.HasPrefix(got, "mlx5_1/1 gid_changed ") {
				t.Error(got)
			}
		case <-time.After(time.Second):
		}
	}
	for name, flag := range map[string]*atomic.Bool{"maintenance": &maintenance, "SIGHUP": &letGo} {
		flag.Store(true)
		open(name, 0)
		flag.Store(false)
		open("after "+name, 2)
	}
	opts.Events = false
	apply(&opts)
	open("without the option", 0)
	opts.Events = true
	apply(&opts)
	open("with it again", 2)
	apply(nil)
	open("without a configuration", 0)
}
