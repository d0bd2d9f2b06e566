//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/test/faults"
)

// findTime is the maximum time until a fault is a finding: two examinations, a minute apart, or two rounds.
const findTime = 3 * time.Minute

// found returns the active findings of a node, as "severity check, subject".
func (e *exporter) found(t testing.TB) (list []string) {
	t.Helper()
	for _, s := range e.scrape(t).find("finding") {
		list = append(list, fmt.Sprintf("%s %s, %s", s.labels["severity"], s.labels["check"], s.labels["subject"]))
	}
	slices.Sort(list)
	return list
}

// wanted returns the expected finding of a fault of the matrix in the lab.
func wanted(f faults.Fault) string {
	return strings.ReplaceAll(f.Want, faults.Peer, target)
}

// plantFault plants the fault of a row of the matrix.
func plantFault(t *testing.T, f faults.Fault) {
	t.Helper()
	if f.Lab.Cable {
		node(1).Cable(t, 1, false)
	}
	for n, script := range map[node]string{1: f.Lab.Shell, 2: f.Lab.Peer} {
		if script != "" {
			n.Shell(t, strings.ReplaceAll(script, faults.Shape, shape))
		}
	}
}

// TestFindings plants faults of the matrix on a node that serves: each becomes a finding under its own name within
// three minutes, and no other critical one is raised. A node that starts with the fault finds it within seconds.
func TestFindings(t *testing.T) {
	for _, f := range faults.List() {
		if !f.Lab.In() || f.Lab.Bench {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			if !f.Lab.CI {
				onlyLong(t) // fixtures cover the same list, and the checks have their own tests
			}
			freshRails(t, 2)
			var e *exporter
			start := func() {
				if f.Lab.Asks {
					if f.Want == "" { // without a limit, both rails share one emulated processor, which is a finding
						limit(t, 0, shape)
						limit(t, 1, shape)
					}
					answer(t)
					e = ask(t)
				} else {
					e = serve(t, 1)
				}
			}
			if f.Lab.Later || f.Lab.Asks {
				start()
			}
			if f.Lab.Later {
				time.Sleep(15 * time.Second) // after two examinations the rail is known and counters have a past
			}
			plantFault(t, f)
			if e == nil {
				start()
			}
			findsFault(t, e, f)
		})
	}
}

// findsFault waits for the finding of a fault. No other critical one may be raised.
func findsFault(t *testing.T, e *exporter, f faults.Fault) {
	t.Helper()
	want, planted := wanted(f), time.Now()
	if want == "" {
		time.Sleep(findTime)
	} else {
		eventually(t, findTime, func() error {
			if got := e.found(t); !slices.Contains(got, want) {
				return fmt.Errorf("found %q, want %s", got, want)
			}
			return nil
		})
	}
	list := e.found(t)
	t.Logf("found after %.0f s: %q", time.Since(planted).Seconds(), list)
	for _, one := range list {
		critical, warning := strings.HasPrefix(one, "critical "), strings.HasPrefix(one, "warning ")
		if one != want && (critical && !slices.Contains(f.Beside, one) || want == "" && warning) {
			t.Errorf("also %s", one)
		}
	}
}

// TestQueuePairsFail: a receiver is killed while data is sent to it. The sender's counters say what happened, and the
// finding accuses the peer or the path.
func TestQueuePairsFail(t *testing.T) {
	if !*long {
		t.Skip("two minutes: -long")
	}
	freshRails(t, 2)
	state := strings.TrimSpace(node(1).Run(t, "mktemp", "-d"))
	serve(t, 1, "--state.dir="+state)
	time.Sleep(30 * time.Second) // after two examinations and some readings
	// Soft-RoCE repeats for ever with a retry count of 7, which is what perftest sets without rdma_cm.
	argv := []string{"ib_write_bw", "-R", "--retry_count=3", "-F", "-s", "65536", "-n", "2000000", "-t", "8", "-Q", "8"}
	server := node(2).Start(t, argv...)
	time.Sleep(2 * time.Second)
	client := node(1).Start(t, append(argv, node(2).address(1))...)
	time.Sleep(5 * time.Second)
	if !client.Running() {
		t.Fatalf("the sender ended: %s %s", client.Stdout, client.Stderr)
	}
	node(2).Run(t, "kill", "-9", strconv.Itoa(server.PID))
	start := time.Now()
	client.end(t, time.Minute)
	t.Logf("the sender ended after %v: %s %s", time.Since(start).Round(time.Millisecond), client.Stdout, client.Stderr)
	eventually(t, 3*time.Minute, func() error {
		out, _ := node(1).Try(railscope, "doctor", "--state.dir="+state, "--format=json", "--only=queue_pairs_failed")
		if !strings.Contains(out.Stdout, "1 queue pair gave up on a silent peer") {
			return fmt.Errorf("no finding: %s %s", out.Stdout, out.Stderr)
		}
		t.Logf("after %v: %s", time.Since(start).Round(time.Second), out.Stdout)
		return nil
	})
}
