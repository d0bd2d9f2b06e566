//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/railscope/railscope/bench/record"
)

// recorded returns the record that railscope run wrote.
func recorded(t *testing.T, p *process) (r record.Record) {
	t.Helper()
	text, err := os.ReadFile("/out/run.json")
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("exit code %d\n%s", p.RC, p.Stderr)
	return r
}

// TestRunCommand: the bytes that ib_write_bw and iperf3 report equal those that the rails carried meanwhile, within
// 2 %.
func TestRunCommand(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	through := []string{railscope, "run", "--json=/out/run.json", "--"}
	b := burst{rail: 0, messages: 400, size: 64 << 10, through: through}
	client, server := b.begin(t)
	client.Wait(t, roundTime)
	server.Wait(t, commandTime)
	r := recorded(t, client)
	if !strings.Contains(r.Verdict, "one of 2 rails carried everything: rail 0") || r.ExitCode != 0 || len(r.Rails) != 2 {
		t.Fatalf("%q of %+v", r.Verdict, r.Rails)
	}
	want := float64(b.messages * b.size)
	if got := r.Rails[0].Transmit.Payload; got == nil || float64(*got) < 0.98*want || float64(*got) > 1.02*want {
		t.Errorf("%v bytes of payload, ib_write_bw sent %.0f", got, want)
	} else {
		t.Logf("ib_write_bw: %d bytes of payload of %.0f: %.4f", *got, want, float64(*got)/want)
	}

	server = node(2).Start(t, "iperf3", "-s", "-1", "-B", node(2).address(1))
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", "sport = :5201") == "" {
			return fmt.Errorf("iperf3 does not listen")
		}
		return nil
	})
	client = node(1).Start(t, append(through, "iperf3", "-c", node(2).address(1), "-n", "32M", "-J")...)
	out := client.Wait(t, roundTime)
	server.Wait(t, commandTime)
	r = recorded(t, client)
	var theirs struct {
		End struct {
			Sent     struct{ Bytes float64 } `json:"sum_sent"` // includes data that is still in the socket
			Received struct{ Bytes float64 } `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &theirs); err != nil {
		t.Fatal(err)
	}
	got, sent, received := r.Rails[1].TCP, theirs.End.Sent.Bytes, theirs.End.Received.Bytes
	if !strings.Contains(r.Verdict, "nothing went by RDMA: TCP carried") || got == nil || received == 0 {
		t.Fatalf("%q, %v bytes, iperf3 sent %.0f", r.Verdict, got, sent)
	}
	t.Logf("iperf3: %d bytes, %.0f sent, %.0f received", *got, sent, received)
	if float64(*got) < 0.98*received || float64(*got) > 1.02*sent {
		t.Errorf("%d bytes", *got)
	}
}
