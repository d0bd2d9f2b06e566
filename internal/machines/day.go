package machines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Days returns the machines whose normal day is replayed.
func Days() []Machine {
	day := []string{"hgx-h100-roce", "dgx-h100-ib", "mi355x-pollara", "mi300x-thor2", "azure-nd-h100", "spark-ring",
		"gb200-nvl72-tray", "e810-roce", "ec2-p4d", "lag-renamed"}
	return slices.DeleteFunc(All(), func(m Machine) bool { return !slices.Contains(day, m.Name) })
}

// Watcher is a railscope on a machine during a day.
type Watcher interface {
	Start() // starts railscope with its saved state
	Rails() ([]rail.Rail, error)
	Minutes(count int, during string) // runs it; it may report only what Lost and Back allow
	Lost(finding string)              // from now on "CHECK SUBJECT" may be raised
	Back(finding string)              // the finding must be cleared after three examinations
	Over(finding string)              // the finding must recover at once
	Moment(begin, end func())         // reads hard facts once between begin and end, and once after
	Maintenance(on bool)              // whether the maintenance file exists
}

// Day replays a normal day: a rail is renamed, reloaded and unplugged for maintenance, its link flaps, its adapter
// starts late after a reboot, a job fills all rails, and an adapter is added. It takes 67 minutes of w's time.
func (t *Tree) Day(w Watcher) {
	w.Minutes(5, "at first")
	rails, err := w.Rails()
	t.must(err)
	first := t.usual(rails)
	missing := "rail_missing rail " + first.Name
	if len(rails) == 1 {
		missing = "no_rails node"
	}

	t.away(first.Device)("renamed0")
	w.Minutes(4, "renamed")
	t.away("renamed0")(first.Device)
	w.Minutes(4, "renamed back")

	w.Maintenance(true)
	bring := t.away(first.Device)
	w.Lost(missing)
	w.Minutes(4, "while its driver is reloaded")
	bring(first.Device)
	w.Back(missing)
	w.Minutes(6, "after its driver was reloaded")
	t.unplugged(w, first)
	w.Maintenance(false)

	cut := func() { t.link(first, "1: DOWN", "2: Polling", 0) }
	join := func() { t.link(first, "4: ACTIVE", "5: LinkUp", 1) }
	cut()
	for _, f := range lostLink(first) {
		w.Lost(f)
	}
	w.Minutes(1, "while the link is down for less than two examinations")
	join()
	for _, f := range lostLink(first) {
		w.Over(f)
	}
	w.Minutes(4, "after a short interruption")

	w.Moment(cut, join)
	w.Moment(func() { bring = t.away(first.Device) }, func() { bring(first.Device) })
	w.Minutes(4, "after moments without a link, and without the device")

	bring = t.away(first.Device)
	w.Start()
	w.Lost(missing)
	w.Minutes(3, "after a reboot, while the adapter starts")
	bring(first.Device)
	w.Back(missing)
	w.Minutes(6, "after the adapter has started")

	w.Start()
	w.Minutes(4, "after a restart")

	stop := t.job(rails)
	w.Minutes(8, "while a job fills all rails")
	stop()

	t.Add(Adapter{Model: Plugged(), At: "0000:ee:00.0", Device: "plugged0", Netdev: "plugged"})
	w.Minutes(4, "after an adapter was added")
}

// usual returns the first rail that is up and is the only port of its device.
func (t *Tree) usual(rails []rail.Rail) rail.Rail {
	for _, r := range rails {
		// without the file, it is not up
		state, _ := os.ReadFile(filepath.Join(r.Dir, "ports", fmt.Sprint(r.Port), "state"))
		alone := !slices.ContainsFunc(rails, func(o rail.Rail) bool { return o.Device == r.Device && o != r })
		if alone && strings.HasPrefix(string(state), "4") && r.PCIAddress != "" && r.Synthetic == "" {
			return r
		}
	}
	t.tb.Fatal("no rail that is up")
	return rail.Rail{}
}

// lostLink returns the findings of a link that is down.
func lostLink(r rail.Rail) []string {
	return []string{"port_down rail " + r.Name, "half_unused rail " + r.Name}
}

// unplugged takes a link down as if its cable were unplugged.
func (t *Tree) unplugged(w Watcher, r rail.Rail) {
	findings := lostLink(r)
	t.link(r, "1: DOWN", "2: Polling", 0)
	for _, f := range findings {
		w.Lost(f)
	}
	w.Minutes(4, "while the link is down")
	t.link(r, "4: ACTIVE", "5: LinkUp", 1)
	for _, f := range findings {
		w.Back(f)
	}
	w.Minutes(6, "after the link came back")
}

// job fills all rails at 12 GB/s in both directions until stop is called, which adds the bytes to the usual
// counters.
func (t *Tree) job(rails []rail.Rail) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for words := 3e9; ; words += 3e9 {
			for _, r := range rails {
				for _, name := range []string{"port_rcv_data", "port_xmit_data"} {
					file := filepath.Join(r.Dir, "ports", fmt.Sprint(r.Port), "counters", name)
					info, err := os.Lstat(file)
					if err != nil || !info.Mode().IsRegular() {
						continue
					}
					text, _ := os.ReadFile(file) // a counter that refuses reads is not a number
					if _, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
						t.overwrite(file, fmt.Sprintf("%.0f\n", 1e12+words))
					}
				}
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	return func() { close(ended); <-done }
}

// overwrite changes a file that others have open and may read at any time.
func (t *Tree) overwrite(file, text string) {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	t.must(err)
	_, err = f.WriteString(text)
	t.must(errors.Join(err, f.Close()))
}

// device returns the directory of an RDMA device, relative to sysfs.
func (t *Tree) device(name string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(t.Sys(), "class/infiniband", name))
	t.must(err)
	rel, _ := filepath.Rel(t.Sys(), dir) // cannot fail: both are in the tree
	return rel
}

// away removes a device, like a reload of its driver, and returns a function that restores it under a name.
func (t *Tree) away(name string) (bring func(name string)) {
	dir, away := t.device(name), filepath.Join(t.Root, "away")
	t.Remove("class/infiniband/" + name)
	t.must(os.Rename(filepath.Join(t.Sys(), dir), away))
	return func(name string) {
		to := filepath.Join(filepath.Dir(dir), name)
		t.must(os.Rename(away, filepath.Join(t.Sys(), to)))
		t.Link("class/infiniband/"+name, to)
	}
}

// link sets the state of a device's first port.
func (t *Tree) link(r rail.Rail, state, physical string, carrier int) {
	dir := fmt.Sprintf("%s/ports/%d", t.device(r.Device), r.Port)
	t.Files(dir, "state", state, "phys_state", physical)
	if r.Netdev != "" {
		t.Files("class/net/"+r.Netdev, "carrier", carrier)
	}
}
