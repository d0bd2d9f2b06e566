package inventory_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/sysfstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

const budget = 10 * time.Second // never exceeded

func read(sys string) inventory.List {
	finder := rail.NewFinder(sys, rail.Options{}, nil, budget)
	return inventory.Read(sys, finder, rdmadev.Finder{}, nothingExpected(finder), budget)
}

func nothingExpected(finder *rail.Finder) *expect.Keeper {
	return expect.New(expect.Options{Find: finder.Snapshot})
}

func table(t *testing.T, list inventory.List) string {
	t.Helper()
	var b bytes.Buffer
	if err := list.WriteTable(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGolden compares the whole output, the table and the JSON.
func TestGolden(t *testing.T) {
	for _, machine := range []string{"dgx-spark", "hgx-h100", "rxe-bonded"} {
		t.Run(machine, func(t *testing.T) {
			root := sysfstest.Unpack(t, "../rail/testdata/"+machine+".txtar")
			list := read(root.Sys())
			var b bytes.Buffer
			if err := list.WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, machine+".json", b.String())
			golden(t, machine+".table", table(t, list))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test ./internal/inventory -update): %s", name, diff)
	}
}

// TestProof: the table has a column of proofs if one is known.
func TestProof(t *testing.T) {
	list := read(sysfstest.Unpack(t, "../rail/testdata/hgx-h100.txtar").Sys())
	if text := table(t, list); strings.Contains(text, "PROOF") {
		t.Errorf("no proof is known:\n%s", text)
	}
	list.Rails[1].Proof = &proof.Proof{By: proof.ByBurst, Rate: 46e9, At: time.Now()}
	rows := strings.Split(table(t, list), "\n")
	if !strings.Contains(rows[0], "  PROOF  ") || strings.Contains(rows[1], "burst") ||
		!strings.Contains(rows[2], "  368 Gb/s by burst, less than 1 min ago  ") {
		t.Errorf("%s", strings.Join(rows, "\n"))
	}
}

func TestNoRails(t *testing.T) {
	root := sysfstest.Unpack(t, "../rail/testdata/no-rdma.txtar")
	list := read(root.Sys())
	if diff := cmp.Diff(inventory.List{Rails: []inventory.Rail{}, LeftOut: []rail.LeftOut{},
		Missing: []rail.Missing{}, Problems: []string{}}, list); diff != "" {
		t.Error(diff)
	}
	var b bytes.Buffer
	if err := list.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	// Empty lists, not null: a script may ask for their length.
	if diff := cmp.Diff("{\n  \"rails\": [],\n  \"left_out\": [],\n  \"missing\": [],\n  \"problems\": []\n}\n",
		b.String()); diff != "" {
		t.Error(diff)
	}
	want := "No rails: sysfs has no RDMA device (class/infiniband).\n"
	if diff := cmp.Diff(want, table(t, list)); diff != "" {
		t.Error(diff)
	}
	list.LeftOut = []rail.LeftOut{{Device: "mlx5_0", Port: 1, Reason: rail.ReasonExcluded}}
	want = "No rails: none of this machine's RDMA ports is one.\n" +
		"Not rails: 1 excluded (railscope rails --all lists them)\n"
	if diff := cmp.Diff(want, table(t, list)); diff != "" {
		t.Error(diff)
	}
}

// A file that cannot be read is a problem, and the other values are listed.
func TestProblems(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(), []byte(`
-- sys/class/infiniband/mlx5_0/ports/1/link_layer --
Ethernet
-- sys/class/infiniband/mlx5_0/ports/1/state --
N/A
-- sys/class/infiniband/mlx5_0/ports/1/phys_state --
11: Unheard of
-- sys/class/infiniband/mlx5_1/fw_ver --
28.39.1002
`))
	list := read(root.Sys())
	want := inventory.List{
		Rails: []inventory.Rail{{
			Rail:  rail.Rail{Name: "0", Device: "mlx5_0", Port: 1, LinkLayer: "Ethernet", NUMANode: -1, Role: rail.Compute},
			State: "unknown", PhysicalState: "11", Address: inventory.Address{GIDIndex: -1,
				Reason: "the GID table is empty: the interface is down, or the driver made no entries"},
			CharacterDevices: []string{}, BytesFrom: "none",
		}},
		LeftOut: []rail.LeftOut{},
		Missing: []rail.Missing{},
	}
	got := list
	got.Problems, got.Rails[0].ID, got.Rails[0].Dir = nil, "", ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	problems := strings.Join(list.Problems, "\n")
	if len(list.Problems) != 2 {
		t.Errorf("%d problems, want 2: %s", len(list.Problems), problems)
	}
	for _, part := range []string{"mlx5_1", root.Sys("class/infiniband/mlx5_1/ports"),
		root.Sys("class/infiniband/mlx5_0/ports/1/state"), `"N/A"`} {
		if !strings.Contains(problems, part) {
			t.Errorf("no %s in %s", part, problems)
		}
	}
}

// TestHang: a port whose files do not answer is listed with what is known, and does not affect others.
func TestHang(t *testing.T) {
	sys := t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 2); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(sys, "class/infiniband/mlx5_0/ports/1/gids")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hung := hungfs.Mount(t, dir, map[string]string{"0": "fe80:0000:0000:0000:0000:0000:0000:0001\n"})
	t.Cleanup(hung.Release)
	finder := rail.NewFinder(sys, rail.Options{}, nil, budget)
	list := inventory.Read(sys, finder, rdmadev.Finder{}, nothingExpected(finder), 500*time.Millisecond)
	var got []string
	for _, r := range list.Rails {
		got = append(got, r.Device+" "+r.State)
	}
	if diff := cmp.Diff([]string{"mlx5_0 unknown", "mlx5_1 ACTIVE"}, got); diff != "" {
		t.Error(diff)
	}
	if len(list.Problems) != 1 || list.Problems[0] != "mlx5_0 port 1: no answer within 500ms" {
		t.Errorf("%q", list.Problems)
	}
}

// TestCharacterDevices: a rail has its own devices, and the table has the flags for all devices, each once.
func TestCharacterDevices(t *testing.T) {
	sys := t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 2); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"mlx5_0", "mlx5_1"} {
		dir := filepath.Join(sys, fmt.Sprintf("class/infiniband_verbs/uverbs%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ibdev"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nodes := rdmadev.Finder{Sysfs: sys, CharDevices: func(device string) []string {
		return []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs" + strings.TrimPrefix(device, "mlx5_")}
	}}
	finder := rail.NewFinder(sys, rail.Options{}, nil, budget)
	list := inventory.Read(sys, finder, nodes, nothingExpected(finder), budget)
	if diff := cmp.Diff([]string{"/dev/infiniband/uverbs1", "/dev/infiniband/rdma_cm"},
		list.Rails[1].CharacterDevices); diff != "" {
		t.Error(diff)
	}
	want := "Devices for a container: --device=/dev/infiniband/uverbs0 --device=/dev/infiniband/uverbs1 " +
		"--device=/dev/infiniband/rdma_cm\n"
	if got := table(t, list); !strings.Contains(got, "\n"+want) {
		t.Errorf("%s, want %s", got, want)
	}
}
