package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/sysfstest"
)

// stateSettings returns the flags of rails on a machine with three rails.
func stateSettings(t *testing.T) railsSettings {
	t.Helper()
	dir := t.TempDir()
	sysfstest.Write(t, dir, []byte(`
-- sys/class/infiniband/mlx5_0/node_guid --
b859:9f03:0000:0001
-- sys/class/infiniband/mlx5_0/ports/1/link_layer --
Ethernet
-- sys/class/infiniband/mlx5_1/node_guid --
b859:9f03:0000:0002
-- sys/class/infiniband/mlx5_1/ports/1/link_layer --
Ethernet
-- sys/class/infiniband/mlx5_2/node_guid --
b859:9f03:0000:0003
-- sys/class/infiniband/mlx5_2/ports/1/link_layer --
Ethernet
`))
	s := railsSettings{common: &common{Machine: serve.Machine{Sysfs: filepath.Join(dir, "sys")},
		stateDir: filepath.Join(dir, "state")}, format: "json"}
	s.log.Writer = io.Discard
	return s
}

// serving uses the state as serve does for one discovery of the devices, then calls while.
func (s railsSettings) serving(t *testing.T, while func()) {
	t.Helper()
	store := serve.OpenState(s.stateDir, promslog.New(&s.log))
	serve.NewHost(s.Machine, &config.Config{}, store, time.Minute).Finder.Snapshot()
	if while != nil {
		while()
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// listed returns the rails, and those that are missing, as railscope rails prints them.
func (s railsSettings) listed(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	var list inventory.List
	if err := errors.Join(s.run(t.Context(), newShutdownTracker(), &b), json.Unmarshal(b.Bytes(), &list)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range list.Rails {
		out = append(out, r.Device+":"+r.Name)
	}
	for _, m := range list.Missing {
		out = append(out, "missing:"+m.Name)
	}
	return strings.Join(out, " ")
}

// TestStateOutlivesTheProcess: a card that is missing after a restart renames no rail, even if device names change,
// and railscope rails prints the same names.
func TestStateOutlivesTheProcess(t *testing.T) {
	s := stateSettings(t)
	s.serving(t, nil)
	device := func(name string) string { return filepath.Join(s.Sysfs, "class/infiniband", name) }
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fatal(os.RemoveAll(device("mlx5_0")))
	fatal(os.Rename(device("mlx5_1"), device("mlx5_0")))
	fatal(os.Rename(device("mlx5_2"), device("mlx5_1")))
	if got, want := s.listed(t), "mlx5_0:1 mlx5_1:2 missing:0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.serving(t, func() {
		if got, want := s.listed(t), "mlx5_0:1 mlx5_1:2 missing:0"; got != want {
			t.Errorf("beside serve: %s, want %s", got, want)
		}
	})
	without := *s.common
	without.stateDir = ""
	other := railsSettings{common: &without, format: s.format}
	if got, want := other.listed(t), "mlx5_0:0 mlx5_1:1"; got != want {
		t.Errorf("without state: %s, want %s", got, want)
	}
}

// TestForgetRail follows the procedure of docs/rails.md: after a card is removed permanently, the next new one gets
// its number.
func TestForgetRail(t *testing.T) {
	s := stateSettings(t)
	fail := func(name, want string) {
		t.Helper()
		s.forget = name
		if err := s.run(t.Context(), newShutdownTracker(), io.Discard); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	fail("1", "no such file or directory")
	s.serving(t, func() { fail("1", "stop that railscope first") })
	if err := os.RemoveAll(filepath.Join(s.Sysfs, "class/infiniband/mlx5_1")); err != nil {
		t.Fatal(err)
	}
	fail("east", `no rail "east" is remembered`)
	var b bytes.Buffer
	s.forget = "1"
	if err := s.run(t.Context(), newShutdownTracker(), &b); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(),
		"Forgot rail 1 (mlx5_1/1, place unknown). A new rail gets the lowest free number.\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	fail("1", `no rail "1" is remembered`)
	s.forget = ""
	if got, want := s.listed(t), "mlx5_0:0 mlx5_2:2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	sysfstest.Write(t, filepath.Dir(s.Sysfs),
		[]byte("-- sys/class/infiniband/mlx5_3/ports/1/link_layer --\nEthernet\n-- "+
			"sys/class/infiniband/mlx5_3/node_guid --\nb859:9f03:0000:0009\n"))
	s.serving(t, nil)
	if got, want := s.listed(t), "mlx5_0:0 mlx5_2:2 mlx5_3:1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.forget, s.stateDir = "1", ""
	if err := s.run(t.Context(), newShutdownTracker(), io.Discard); !errors.As(err, new(misuse)) {
		t.Error(err)
	}
}

// TestSpoiledState: an invalid state file does not prevent the start.
func TestSpoiledState(t *testing.T) {
	for _, content := range []string{"{", `{"version": 1, "rails": 5}`, `{"version": 1, "rails": [{"number": -1}]}`,
		`{"version": 9}`} {
		s := stateSettings(t)
		var log bytes.Buffer
		s.log.Writer = &log
		if err := os.Mkdir(s.stateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.stateDir, "state.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		s.serving(t, nil)
		if got, want := s.listed(t), "mlx5_0:0 mlx5_1:1 mlx5_2:2"; got != want {
			t.Errorf("%s: %s, want %s", content, got, want)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "State saved") {
			t.Errorf("%s: logged %s", content, log.String())
		}
	}
}

// TestForeignState: a state whose adapters are all absent, as in a disk image, is set aside with all sections. One
// known adapter makes it this node's, and so does a node without GUIDs.
func TestForeignState(t *testing.T) {
	const record = `{"number": %d, "device": "mlx5_%d", "port": 1, "place": "0000:18:00.%[2]d", ` +
		`"pci_address": "0000:18:00.%[2]d", "node_guid": "%s"}`
	const software = `{"number": 9, "device": "rxe0", "port": 1, "place": "net:eth0", "node_guid": "b859:9f03:0000:0001"}`
	own := "b859:9f03:0000:0001"
	rails := func(guids ...string) string {
		var list []string
		for i, guid := range guids {
			list = append(list, fmt.Sprintf(record, i+5, i, guid))
		}
		return strings.Join(list, ",")
	}
	for name, tc := range map[string]struct {
		rails, seen string // GUID of a port in the section expect
		change      string // change of the node
		want        string // number of mlx5_0
	}{
		"unchanged":             {rails(own), own, "", "5"},
		"upper case":            {rails(strings.ToUpper(own)), "", "", "5"},
		"an image":              {rails("a:1", "a:2"), "a:1", "", "0"},
		"an image and its rxe":  {rails("a:1") + "," + software, "a:1", "", "0"},
		"one of two replaced":   {rails("a:1", own), "", "", "6"},
		"the only one replaced": {rails("a:1"), "a:1", "", "0"},
		"only expectations":     {"", "a:1", "", "0"},
		"no GUID recorded":      {rails("", "0000:0000:0000:0000"), "", "", "5"},
		"no GUID here":          {rails("a:1"), "a:1", "-- infiniband/mlx5_0/node_guid --\n0000:0000:0000:0000\n", "5"},
		"one did not answer":    {rails("a:1"), "a:1", "-- infiniband/mlx5_9/ports --\nno directory\n", "5"},
	} {
		t.Run(name, func(t *testing.T) {
			e := expectSettingsOf(t)
			s := railsSettings{common: e.common, format: "json"}
			var log bytes.Buffer
			s.log.Writer = &log
			file := filepath.Join(s.stateDir, "state.json")
			content := fmt.Sprintf(`{"version": 1, "rails": [%s], "baselines": {"a": {"0": "20780 1e9 9"}}, "expect": {"ports":
				[{"place": "0000:18:00.0", "port": 1, "node_guid": "%s", "pci_address": "0000:18:00.0"}]}}`, tc.rails, tc.seen)
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			sysfstest.Write(t, filepath.Join(s.Sysfs, "class"), []byte(tc.change))
			if got := s.listed(t); !strings.HasPrefix(got, "mlx5_0:"+tc.want) {
				t.Errorf("railscope rails: %s, want %s", got, tc.want)
			}
			log.Reset()
			s.serving(t, nil)
			aside, err := os.ReadFile(file + ".bak")
			now, _ := os.ReadFile(file)
			if foreign := tc.want == "0"; foreign != (err == nil) || foreign && string(aside) != content ||
				foreign == bytes.Contains(now, []byte("baselines")) {
				t.Errorf("set aside: %v, %q; now %s", err, aside, now)
			}
			if foreign := tc.want == "0"; foreign != (strings.Count(log.String(), "leave --state.dir out of disk images") == 1) {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}
