package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/status"
)

// TestRailsProof: the list has the proofs of the railscope that runs here, each for the rail of its name and port.
func TestRailsProof(t *testing.T) {
	at := time.Now().Add(-13 * time.Minute).UTC().Truncate(time.Second)
	known := func(name, device, port string) status.Rail {
		return status.Rail{Name: name, Device: device, Port: port,
			Proof: &proof.Proof{By: proof.ByTraffic, Rate: 46.4e9, At: at}}
	}
	running := status.Status{Version: status.Version, Rails: []status.Rail{known("0", "mlx5_0", "1"),
		known("1", "rxe1", "1"), known("1", "mlx5_1", "2"), known("2", "mlx5_1", "1")}}
	s := railsSettings{common: checkOf(t).common, format: "json"}
	s.stateDir = answer(t, asJSON(running))
	list := func() string {
		var b bytes.Buffer
		if err := s.run(t.Context(), newShutdownTracker(), &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	var got inventory.List
	if err := json.Unmarshal([]byte(list()), &got); err != nil || len(got.Rails) != 2 {
		t.Fatal(err, len(got.Rails))
	}
	if p := got.Rails[0].Proof; p == nil || p.Rate != 46.4e9 || !p.At.Equal(at) || got.Rails[1].Proof != nil {
		t.Errorf("%+v, %+v", p, got.Rails[1].Proof)
	}
	s.format = "table"
	if text := list(); !strings.Contains(text, "371.2 Gb/s by traffic, 13 min ago") {
		t.Error(text)
	}
	s.stateDir = t.TempDir()
	if text := list(); strings.Contains(text, "PROOF") {
		t.Errorf("nothing runs: %s", text)
	}
}
