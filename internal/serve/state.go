package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/state"
)

// Sections of the state directory.
const (
	railsSection     = "rails"      // identities of rails
	expectSection    = "expect"     // best values seen
	baselinesSection = "baselines"  // what rails carried
	kernelLogSection = "kernel_log" // position in the kernel log
)

// section returns a section of the store, and what replaces it; nil without a store. A section that is missing or
// invalid is empty, and an invalid one is reported. check may be nil.
func section[T any](store *state.Store, name string, check func(T) error) (v T, save func(T)) {
	if store == nil {
		return v, nil
	}
	_, err := store.Get(name, &v)
	if err == nil && check != nil {
		err = check(v)
	}
	if err != nil {
		store.Reject(name, err)
		v = *new(T)
	}
	return v, func(v T) { store.Set(name, v) }
}

// OpenState opens the state directory of serve, or returns nil without one. The caller closes it.
func OpenState(dir string, logger *slog.Logger) *state.Store {
	if dir == "" {
		return nil
	}
	return state.Open(dir, func(err error) {
		logResult(logger, err, "State directory error", "State saved", "dir", dir)
	})
}

// errForeign is returned when the state is another node's, and is not used.
var errForeign = errors.New("it is of another node, or all adapters were replaced: no adapter that it knows is here. " +
	"Rails are numbered and learned anew; leave --state.dir out of disk images")

// remember connects the finder to the store: it uses the saved records, and saves its own. The state of another
// node is set aside with all sections. A nil store does nothing.
func remember(finder *rail.Finder, store *state.Store) {
	if store == nil {
		return
	}
	if finder.Foreign(recordedGUIDs(store)) {
		store.SetAside(errForeign)
	}
	_ = finder.Remember(section(store, railsSection, rail.CheckRecords)) // they are checked
}

// recordedGUIDs returns the node GUIDs of the adapters in the store. Users of invalid sections report them.
func recordedGUIDs(store *state.Store) (guids []string) {
	var known []rail.Record
	var memory expect.Memory
	_, errKnown := store.Get(railsSection, &known)
	_, errMemory := store.Get(expectSection, &memory)
	if errKnown != nil || errMemory != nil {
		return nil
	}
	for _, r := range known {
		if r.PCIAddress != "" { // software devices have GUIDs from the interface below
			guids = append(guids, r.NodeGUID)
		}
	}
	for _, p := range memory.Ports {
		guids = append(guids, p.NodeGUID)
	}
	return guids
}

// ForgetRail removes a rail from the state directory of a railscope that is stopped. names are the configured names.
func ForgetRail(dir, name string, names map[string]string) (gone rail.Record, err error) {
	if _, err := os.Stat(dir); err != nil {
		return gone, err
	}
	store := state.Open(dir, nil)
	defer func() { err = cmp.Or(err, store.Close()) }()
	if err := store.Err(); errors.Is(err, state.ErrLocked) {
		return gone, fmt.Errorf("%w; stop that railscope first, and start it again afterwards", err)
	} else if err != nil {
		return gone, err
	}
	var known []rail.Record
	_, err = store.Get(railsSection, &known)
	if err := errors.Join(err, rail.CheckRecords(known)); err != nil {
		return gone, err
	}
	left, gone, found := rail.Forget(known, name, names)
	if !found {
		return gone, fmt.Errorf("no rail %q is remembered in %s; railscope rails lists them, missing ones too",
			name, dir)
	}
	store.Set(railsSection, left)
	return gone, nil
}

func expectConfig(c *config.Config) expect.Config {
	e := c.Expect
	return expect.Config{Rails: int(e.Rails), Rate: float64(e.Rate), MTU: int(e.MTU), GPUs: int(e.GPUs)}
}

// newKeeper returns a keeper of what is expected of the finder's rails, with the expectations in the store, which
// may be nil.
func newKeeper(sysfs string, cfg *config.Config, finder *rail.Finder, store *state.Store) *expect.Keeper {
	opts := expect.Options{Sysfs: sysfs, Find: finder.Snapshot, Config: expectConfig(cfg), Budget: deviceBudget,
		Forget: finder.Forget}
	opts.Memory, opts.Save = section(store, expectSection, expect.Memory.Check)
	return expect.New(opts)
}

// Baselines returns the keeper of what rails carried, with the data of the store.
func (h *Host) Baselines() *baseline.Keeper {
	return baseline.New(section(h.Store, baselinesSection, baseline.State.Check))
}

// PathReset is the path of a request to drop what was seen of a rail, on the socket of the state directory.
const PathReset = "/-/expect/reset"

// Reset drops what was seen of a rail, and what it carried.
func (h *Host) Reset(past *baseline.Keeper, name string) (text string, err error) {
	text, err = h.Keeper.Reset(name)
	if err == nil {
		past.Forget(name)
	}
	return text, err
}

// resetHandler answers a reset request.
func (h *Host) resetHandler(past *baseline.Keeper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := h.Reset(past, r.URL.Query().Get("rail"))
		switch {
		case errors.Is(err, expect.ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			fmt.Fprintf(w, "Forgot %s.\n", text)
		}
	})
}
