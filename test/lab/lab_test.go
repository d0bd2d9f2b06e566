//go:build lab

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// The tests of this file test the lab itself: if one of them fails, the others prove nothing. They do not need
// railscope.

func TestLabCommands(t *testing.T) {
	for _, n := range []node{1, 2} {
		if got, want := strings.TrimSpace(n.Run(t, "hostname")), fmt.Sprintf("node%d", n); got != want {
			t.Errorf("node %d calls itself %q", n, got)
		}
		if res, err := n.Try("bash", "-c",
			"echo out; echo err >&2; exit 7"); err == nil || res.RC != 7 || res.Stdout != "out\n" || res.Stderr !=
			"err\n" {
			t.Errorf("node %d: result %+v, error %v; want exit code 7 and both outputs", n, res, err)
		}
		if _, err := n.Try("/no/such/command"); err == nil {
			t.Errorf("node %d: started a command that does not exist", n)
		}
		p := n.Start(t, "bash", "-c", "sleep 1000 & wait")
		p.kill()
		eventually(t, commandTime, func() error {
			if out, err := n.Try("pgrep", "-x", "sleep"); err == nil {
				return fmt.Errorf("node %d: hanging up left a child behind: %s", n, out.Stdout)
			}
			return nil
		})
	}
}

func TestLabRails(t *testing.T) {
	for _, rails := range []int{2, 4} {
		freshRails(t, rails)
		for _, n := range []node{1, 2} {
			if got := len(lines(n.Run(t, "rdma", "link"))); got != rails {
				t.Errorf("node %d has %d RDMA devices, want %d", n, got, rails)
			}
			for rail := range rails {
				g, _ := gidOf(gids(t, n, fmt.Sprintf("rxe%d", rail)), n.address(rail))
				if want := fmt.Sprintf("eth%d", rail); g.netdev != want {
					t.Errorf("node %d: the GID of rxe%d is on %q, want %s", n, rail, g.netdev, want)
				}
			}
		}
	}
}

func TestLabTraffic(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, shape)
	limit(t, 1, shape)
	var ends []func() float64
	for rail := range 2 {
		ends = append(ends, burst{rail: rail, messages: 60, size: 64 << 10}.start(t))
	}
	for rail, end := range ends {
		rate := end()
		t.Logf("rail %d: %.1f Mbit/s of %s", rail, rate*8/1e6, shape)
		if rate*8 < 20e6 || rate*8 > 31e6 {
			t.Errorf("rail %d carried %.1f Mbit/s, shaped to %s", rail, rate*8/1e6, shape)
		}
	}
}

func TestLabCable(t *testing.T) {
	freshRails(t, 2)
	state := func(n node, want string) func() error {
		return func() error {
			got := strings.TrimSpace(n.Run(t, "cat", "/sys/class/infiniband/rxe1/ports/1/state"))
			if got != want {
				return fmt.Errorf("node %d: rxe1 is %s, want %s", n, got, want)
			}
			return nil
		}
	}
	node(1).Cable(t, 1, false)
	eventually(t, linkTime, state(1, "1: DOWN"))
	if got := strings.TrimSpace(node(1).Run(t, "cat", "/sys/class/net/eth1/carrier")); got != "0" {
		t.Errorf("carrier of a NIC without cable reads %s", got)
	}
	if err := state(2, "4: ACTIVE")(); err != nil {
		t.Error(err)
	}
	node(1).Cable(t, 1, true)
	eventually(t, linkTime, state(1, "4: ACTIVE"))
	meet(t, 1)
}

// TestLabBondMovesGIDs shows the fault that gid_misbound detects: two rails are added to a bond, and the second
// one's GIDs become the first one's.
func TestLabBondMovesGIDs(t *testing.T) {
	freshRails(t, 2)
	bond(t, node(1), "balance-xor", "xmit_hash_policy", "layer3+4")
	eventually(t, linkTime, func() error {
		if g, ok := gidOf(gids(t, 1, "rxe1"), node(1).address(0)); !ok || g.netdev != "bond0" {
			return fmt.Errorf("rxe1 does not have the address of rxe0 on bond0: %+v", g)
		}
		return nil
	})
}
