package expect

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfstest"
)

// TestList compares the whole table: a rail that trained low, one that is down and was never seen up, a software
// device, a missing rail, and a missing GPU.
func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.card(0, "400", gen5, 9000)
		m.card(1, "down", gen5, 9000)
		m.card(2, "400", gen5, 9000)
		m.gpu("0000:1a:00.0", "0x10de", "0x030200")
		sysfstest.Write(t, m.sys, []byte("-- class/infiniband/rxe0/ports/1/state --\n4: ACTIVE\n"+
			"-- class/infiniband/rxe0/parent --\neth9\n-- class/infiniband/rxe0/ports/1/rate --\n2.5 Gb/sec (1X SDR)\n"+
			"-- class/infiniband/rxe0/ports/1/link_layer --\nEthernet\n"))
		m.minutes(2)
		time.Sleep(24 * time.Hour)
		m.minutes(1)
		m.card(0, "100", "16.0 x8", 1500)
		m.remove(2)
		m.Configure(Config{GPUs: 2})
		time.Sleep(time.Second)
		list := m.List()
		var text, data bytes.Buffer
		if err := list.WriteTable(&text); err != nil {
			t.Fatal(err)
		}
		want := `SUBJECT  DEVICE    PCI           WHAT   NOW          EXPECTED           WHY
rail 0   mlx5_0/1  0000:18:00.0  rate   100 Gb/s     400 Gb/s     LOST  best seen, 2000-01-01 to 2000-01-02
rail 0   mlx5_0/1  0000:18:00.0  pcie   16 GT/s x8   32 GT/s x16  LOST  best seen, 2000-01-01 to 2000-01-02
rail 0   mlx5_0/1  0000:18:00.0  mtu    1024         4096         LOST  best seen, 2000-01-01 to 2000-01-02
rail 1   mlx5_1/1  0000:19:00.0  pcie   32 GT/s x16  -                  not seen yet: the port is not active
rail 1   mlx5_1/1  0000:19:00.0  mtu    4096         -                  not seen yet: the port is not active
rail 3   rxe0/1    -             rate   2.5 Gb/s     -                  nothing is expected of a software device
node     -         -             rails  3            4            LOST  remembered
node     -         -             gpus   1            2            LOST  configured
Missing: rail 2 (mlx5_2/1 at 0000:1a:00.0)
`
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("-want +got: %s", diff)
		}
		var got struct{ Rows []map[string]any }
		if err := list.WriteJSON(&data); err != nil || json.Unmarshal(data.Bytes(), &got) != nil {
			t.Fatal(err, data.String())
		}
		first := map[string]any{"subject": "rail 0", "device": "mlx5_0/1", "pci_address": "0000:18:00.0",
			"attribute": "rate", "now": "100 Gb/s", "expected": "400 Gb/s", "now_value": 12.5e9, "expected_value": 50e9,
			"lost": true, "source": "best_seen", "since": "2000-01-01T00:02:00Z", "last": "2000-01-02T00:03:00Z",
			"why": "best seen, 2000-01-01 to 2000-01-02"}
		if diff := cmp.Diff(first, got.Rows[0]); diff != "" {
			t.Errorf("-want +got: %s", diff)
		}
	})
}
