package serve

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/state"
)

// untilDone runs until ctx is canceled.
func untilDone(ctx context.Context) { <-ctx.Done() }

// TestRun: canceled tasks end without an error, and a task that fails cancels the others. Each is tracked until it has
// ended.
func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for _, want := range []error{nil, broken} {
		var mu sync.Mutex
		var log []string
		begin := func(name string, _ func() []string) func() {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, "begin "+name)
			return func() {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, "end "+name)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		stops := Task{Name: "stops", Run: func(context.Context) error {
			if want == nil {
				cancel()
			}
			return want
		}}
		err := Run(ctx, []Task{background("waits", untilDone), stops}, begin)
		cancel()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		slices.Sort(log)
		if diff := cmp.Diff([]string{"begin stops", "begin waits", "end stops", "end waits"}, log); diff != "" {
			t.Error(diff)
		}
	}
}

// TestBackground: a task ends when its context is canceled, and leaves a function that hangs behind.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		for _, tc := range []struct {
			name string
			run  func(context.Context)
			want time.Duration
		}{
			{"ends by itself", func(context.Context) {}, 0},
			{"ends when canceled", untilDone, time.Minute},
			{"hangs", func(context.Context) { <-release }, time.Minute + deviceBudget},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			start := time.Now()
			if err := background(tc.name, tc.run).Run(ctx); err != nil || time.Since(start) != tc.want {
				t.Errorf("%s: %v after %v, want %v", tc.name, err, time.Since(start), tc.want)
			}
			cancel()
		}
		close(release)
	})
}

// TestTasks: the options decide which tasks a node has.
func TestTasks(t *testing.T) {
	dir := t.TempDir()
	store := state.Open(dir, nil)
	t.Cleanup(func() { _ = store.Close() })
	always := []string{"error counters", "examination", "expectations", "source sampler", "the probe", "unmatched patterns"}
	for _, tc := range []struct {
		name   string
		change func(*Options)
		more   []string
	}{
		{"the least", func(*Options) {}, nil},
		{"the state", func(o *Options) { o.Store, o.SocketDir = store, dir }, []string{"socket"}},
		{"the demo", func(o *Options) { o.Notice, o.SocketDir = "simulated", dir }, []string{"socket"}},
		{"maintenance", func(o *Options) { o.Maintenance = filepath.Join(dir, "maintenance") }, []string{"maintenance"}},
		{"logs of NCCL", func(o *Options) { *o.Sources.On["nccl"] = true }, []string{"source nccl"}},
	} {
		o := Options{Sources: DefaultSources(), TelemetryPath: "/metrics"}
		o.Machine = Machine{Sysfs: t.TempDir(), Procfs: t.TempDir(), Rootfs: dir,
			NVML: nvml.NewSession(nvml.NewLibrary(filepath.Join(dir, "none")))}
		tc.change(&o)
		n, err := New(o, &config.Config{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, one := range n.Tasks() {
			names = append(names, one.Name)
		}
		slices.Sort(names)
		want := slices.Sorted(slices.Values(slices.Concat(always, tc.more)))
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Run(ctx, n.Tasks(), nil); err != nil {
			t.Errorf("%s: canceled: %v", tc.name, err)
		}
	}
}
