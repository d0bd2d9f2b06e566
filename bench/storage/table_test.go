package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/bench/suite"
)

// TestTable: a failed target has a row, and its reason follows the table.
func TestTable(t *testing.T) {
	results := []Result{{Target: "/checkpoints", Bytes: 14e9, Streams: 4,
		SaveSeconds: 7.04, SaveBytesPerSecond: 14e9 / 7.04, LoadSeconds: 2.5, LoadBytesPerSecond: 14e9 / 2.5,
		PartSeconds: suite.PartSeconds{Save: suite.Percentiles{P50: 0.031, P99: 0.118},
			Load: suite.Percentiles{P50: 0.0119, P99: 0.0203}}, Cache: "advised",
		Compressed: &suite.Compressed{Bytes: 14e9, SaveSeconds: 31.5, SaveBytesPerSecond: 14e9 / 31.5,
			LoadSeconds:        40.1,
			LoadBytesPerSecond: 14e9 / 40.1},
		Interfaces: []suite.Interface{{Name: "eth0", Sent: 14e9, Received: 14e9, Rail: true}, {Name: "eno1",
			Sent: 1 << 20}}},
		{Target: "s3://bucket/x", Interfaces: []suite.Interface{}, Failure: "Access Denied."}}
	var b bytes.Buffer
	if err := WriteTable(&b, results, false); err != nil {
		t.Fatal(err)
	}
	const want = `TARGET                     SIZE  SAVE s   Gb/s  PART P50 s  P99 s  LOAD s   Gb/s  PART P50 s   P99 s
/checkpoints        13351.4 MiB    7.04  15.91      0.0310  0.118    2.50  44.80      0.0119  0.0203
/checkpoints, gzip  13351.4 MiB    31.5   3.56           -      -    40.1   2.79           -       -
s3://bucket/x                 -       -      -           -      -       -      -           -       -
  - /checkpoints: read after posix_fadvise; eth0 (a rail) sent 13351.4 MiB, received 13351.4 MiB;
    eno1 sent 1.0 MiB, received 0.0 MiB
  - s3://bucket/x: failed: Access Denied.
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestInterfaces: interfaces with traffic are listed, the busiest first, and rails are marked.
func TestInterfaces(t *testing.T) {
	root := t.TempDir()
	write := func(name, file, text string) {
		path := filepath.Join(root, "class/net", name, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, sent, received string) {
		write(name, "statistics/tx_bytes", sent+"\n")
		write(name, "statistics/rx_bytes", received+"\n")
	}
	set("eth0", "100", "100")
	write("eth0", "device/infiniband/mlx5_0/node_guid", "")
	set("eno1", "5", "5")
	set("idle", "7", "7")
	set("reset", "7", "7")
	set("gone", "1", "1")
	before := readInterfaces(root)
	set("eth0", "400", "100")
	set("eno1", "15", "5")
	set("reset", "0", "9")
	if err := os.RemoveAll(filepath.Join(root, "class/net/gone")); err != nil {
		t.Fatal(err)
	}
	set("new", "9", "9")
	want := []suite.Interface{{Name: "eth0", Sent: 300, Rail: true}, {Name: "eno1", Sent: 10}}
	if diff := cmp.Diff(want, carried(before, readInterfaces(root))); diff != "" {
		t.Error(diff)
	}
}
