//go:build lab

package lab

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/internal/rtnl"
)

// announced returns a channel that has the time of the first announcement of the kernel about rail 1, its device or the
// bond, since the call.
func announced(t *testing.T) <-chan time.Time {
	t.Helper()
	first := make(chan time.Time, 1)
	note := func() {
		select {
		case first <- time.Now():
		default:
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	index := strings.TrimSpace(node(1).Run(t, "cat", "/sys/class/net/eth1/ifindex"))
	go notice.Listen(ctx, notice.Routes(), func(m notice.Message) {
		c, ok := rtnl.ParseChange(m.Type, m.Data)
		switch {
		case !ok:
		case c.Interface == nil && fmt.Sprint(c.Address.Index) == index,
			c.Interface != nil && (c.Interface.Name == "eth1" || c.Interface.Name == "bond0"):
			note()
		}
	})
	go notice.Listen(ctx, notice.Devices(), func(m notice.Message) {
		if e, ok := notice.ParseDevice(m.Data); ok && e.Subsystem == "infiniband" {
			note()
		}
	})
	time.Sleep(100 * time.Millisecond) // until both listen
	return first
}

// spread describes times.
func spread(times []time.Duration) string {
	slices.Sort(times)
	late := 0
	for _, d := range times {
		if d > 100*time.Millisecond {
			late++
		}
	}
	return fmt.Sprintf("least %v, median %v, worst %v, %d of %d after 100 ms", times[0].Round(time.Millisecond),
		times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), late, len(times))
}

// TestEventsAtOnce measures the time from the kernel's announcement of a hard fault to the finding in metrics and in
// the status, and to check, of a railscope that nobody asks before. It holds no limit: the nodes are emulated. A device
// that is removed while railscope has it open does not wait for that.
func TestEventsAtOnce(t *testing.T) {
	times := 1
	if *long {
		times = 50
	}
	failover := hardFault{name: "bond failover", finding: "critical bond_member_down, bond bond0",
		events: []string{"bond_failover"}}
	for _, f := range append(hardFaults(), failover) {
		t.Run(f.name, func(t *testing.T) {
			freshRails(t, 2)
			if f.name == failover.name {
				bond(t, 1, "active-backup", "primary", "eth1")
			}
			t.Cleanup(func() {
				if f.fault == "" {
					_ = node(1).cable(1, true)
				}
			})
			state := strings.TrimSpace(node(1).Run(t, "mktemp", "-d"))
			flags := []string{config(t, 1, withToken, listens, "events: true"), "--state.dir=" + state}
			warm := launch(t, 1, flags...)
			eventually(t, commandTime, func() error { return examined(warm, 2) })
			warm.process.Stop(t)
			check := regexp.MustCompile(`\w+,`).FindString(f.finding)
			check = strings.TrimSuffix(check, ",")
			wanted := fmt.Sprintf(`finding{check=%q`, check)
			for _, events := range []bool{true, false} {
				var inMetrics, inStatus, byCheck []time.Duration
				n := times
				if !events { // its examinations are a minute apart
					if !*long {
						continue
					}
					n = 1
				}
				for range n {
					e := launch(t, 1, append(flags, fmt.Sprintf("--%ssource.events", map[bool]string{false: "no-"}[events]))...)
					eventually(t, commandTime, func() error { return examined(e, 2) }) // the next one is a minute later
					if len(inMetrics) == 0 && events {
						memory := node(1).Run(t, "ps", "-o", "rss=", "-C", "railscope-probe")
						t.Logf("the process that keeps the devices open: %s KiB", strings.Fields(memory))
					}
					first := announced(t)
					f.set(t, true)
					at := <-first
					see := func(path, text string) time.Duration {
						t.Helper()
						for explained := false; ; {
							body, err := fetch("http://" + e.node.control() + ":10091" + path)
							took := time.Since(at)
							if err == nil && strings.Contains(body, text) {
								return took
							}
							time.Sleep(20 * time.Millisecond) // the node has other work, too
							if took > 12*time.Second && !explained {
								explained = true
								status, _ := fetch("http://" + e.node.control() + ":10091/-/status")
								t.Logf("late: %s\n%s", status, node(1).Run(t, "sh", "-c",
									"grep . /sys/class/net/*/bonding_slave/mii_status; ip -brief link"))
							}
							if took > 3*time.Minute {
								t.Fatalf("%s has no %s: %v; events:\n%s", path, text, err,
									strings.Join(regexp.MustCompile(`(?m)^railscope_rail_.*event.*$`).FindAllString(body, -1), "\n"))
							}
						}
					}
					inMetrics = append(inMetrics, see("/metrics", wanted))
					for _, event := range f.events {
						if events {
							see("/metrics", fmt.Sprintf(`rail_events_total{event=%q,rail="1"}`, event))
						}
					}
					if events && inMetrics[len(inMetrics)-1] > 30*time.Second {
						t.Errorf("in metrics after %v: an examination every minute is as fast", inMetrics[len(inMetrics)-1])
					}
					start := time.Now()
					at = start
					inStatus = append(inStatus, see("/-/status", check))
					if line, exit := checked(t, state); exit != 1 {
						t.Errorf("check: %q, exit code %d", line, exit)
					}
					byCheck = append(byCheck, time.Since(start))
					f.set(t, false)
					e.process.Stop(t)
				}
				t.Logf("%s, events %v: metrics %s; then the status after %s and check after %s", f.name, events,
					spread(inMetrics), spread(inStatus), spread(byCheck))
			}
		})
	}
}

// examined fails until a railscope has examined its node so often.
func examined(e *exporter, n int) error {
	body, err := fetch("http://" + e.node.control() + ":10091/-/status")
	if err == nil && !regexp.MustCompile(fmt.Sprintf(`"done": ?%d`, n)).MatchString(body) {
		err = fmt.Errorf("not examined yet")
	}
	return err
}
