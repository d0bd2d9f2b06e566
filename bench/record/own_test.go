package record

import (
	"errors"
	"strings"
	"testing"
)

// TestOwnLeftOut: the bytes of railscope's own rounds are not the command's. If they are unknown, the report says so.
func TestOwnLeftOut(t *testing.T) {
	refused := errors.New("run this command as root")
	for _, tc := range []struct {
		why      string
		software bool
		during   func(m *machine)
		own      map[string]Own // bytes of own rounds after the command
		err      error
		verdict  string
		probe    int64
		sent     int64 // payload over rail 0
		note     string
	}{
		{why: "only a round", during: func(m *machine) { m.send(0, gib); m.send(1, gib/2) },
			own:     map[string]Own{"mlx5_0/1": {Transmit: 5 + gib}, "mlx5_1/1": {Transmit: gib / 2}},
			verdict: "the rails carried nothing", probe: gib + gib/2},
		{why: "only a baseline over TCP", during: func(m *machine) { m.bySocket(0, gib) },
			own:     map[string]Own{"mlx5_0/1": {Transmit: 5 + gib, TCP: gib}},
			verdict: "the rails carried nothing", probe: gib},
		{why: "a job and an uneven round", during: func(m *machine) { m.send(0, 4*gib); m.send(1, 3*gib) },
			own:     map[string]Own{"mlx5_0/1": {Transmit: 5 + gib + gib*headerRDMA/4096}},
			verdict: "evenly", probe: gib + gib*headerRDMA/4096, sent: 3 * gib},
		{why: "a round over software devices", software: true, during: func(m *machine) { m.bySoftware(0, gib) },
			own: map[string]Own{"mlx5_0/1": {Transmit: 5 + gib + gib/20}}, verdict: "the rails carried nothing",
			probe: gib + gib/20},
		{why: "no probe", during: func(m *machine) { m.send(0, gib); m.send(1, gib) }, own: map[string]Own{},
			verdict: "2 rails carried", sent: gib},
		{why: "not known", during: func(m *machine) { m.send(0, gib); m.send(1, gib) }, err: refused,
			verdict: "2 rails carried", sent: gib, probe: -1, note: "included: run this command as root"},
		{why: "restarted", during: func(m *machine) { m.send(0, gib); m.send(1, gib) },
			own: map[string]Own{"mlx5_0/1": {Transmit: 1}}, verdict: "2 rails carried", sent: gib, note: "started again"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			m := newMachine(t, 2, tc.software)
			asked := 0
			r := Start(Options{Sysfs: m.dir, Procfs: t.TempDir(), Rails: m.rails, Own: func() (map[string]Own, error) {
				asked++
				if asked == 1 && len(tc.own) > 0 {
					return map[string]Own{"mlx5_0/1": {Transmit: 5}}, tc.err
				}
				return tc.own, tc.err
			}})
			tc.during(m)
			rec := r.Stop()
			if !strings.Contains(rec.Verdict, tc.verdict) {
				t.Errorf("%q, want %q", rec.Verdict, tc.verdict)
			}
			if rec.Probe == nil != (tc.probe < 0) || rec.Probe != nil && *rec.Probe != tc.probe {
				t.Errorf("%v bytes of the probe, want %d", rec.Probe, tc.probe)
			}
			if sent := rec.Rails[0].Transmit.Best(); sent == nil || *sent < tc.sent-tc.sent/50 ||
				*sent > tc.sent+tc.sent/50 {
				t.Errorf("rail 0 sent %v, want %d", *sent, tc.sent)
			}
			if notes := strings.Join(rec.Notes, "\n"); !strings.Contains(notes, tc.note) || tc.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, tc.note)
			}
		})
	}
}
