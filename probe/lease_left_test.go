package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/tcp"
)

// byRDMANowhere opens a rail that b does not have.
var byRDMANowhere = strings.Replace(byRDMA, `"rail":"0"`, `"rail":"no such rail"`, 1)

// openTCP opens the holder's TCP port and returns it.
func (h *holder) openTCP() uint16 {
	h.p.t.Helper()
	text, f := h.do(http.MethodPost, h.id+"/open", byTCP)
	if f.Reason != "" {
		h.p.t.Fatalf("open: %v", f)
	}
	return portOf(h.p.t, text)
}

func portOf(t *testing.T, reply string) uint16 {
	t.Helper()
	var opened protocol.OpenReply
	if err := json.Unmarshal([]byte(reply), &opened); err != nil || opened.TCPPort == 0 {
		t.Fatalf("no TCP port: %s, %v", reply, err)
	}
	return opened.TCPPort
}

// writesByTCP reports whether the key of a lease can still write to a port.
func writesByTCP(ctx context.Context, port uint16, key [32]byte) bool {
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	c, _ := tcp.Dial(ctx, []tcp.Lane{{Rail: "0", Remote: to}}, 1, 4096, key)
	defer c.Close()
	_, err := c.Latency(ctx, "0", 8, 1)
	return err == nil
}

// TestNothingOutlivesLease: the first session of a lease ends with the lease, even if a second open left the lease
// without a session.
func TestNothingOutlivesLease(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ why, first, second string }{
		{"TCP, then a rail that is missing", byTCP, byRDMANowhere},
		{"RDMA, then a rail that is missing", byRDMA, byRDMANowhere},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, 1, nil)
			h := p.holder()
			h.mustAcquire()
			text, f := h.do(http.MethodPost, h.id+"/open", tc.first)
			if f.Reason != "" {
				t.Fatal(f)
			}
			if text, f := h.do(http.MethodPost, h.id+"/open", tc.second); f.Reason != "" || !strings.Contains(text,
				string(failure.NoDevice)) {
				t.Fatalf("%v, %s", f, text)
			}
			if _, f := h.do(http.MethodDelete, h.id, "{}"); f.Reason != "" {
				t.Fatal(f)
			}
			if left := p.fabric.Left(); len(left) > 0 || p.resp.Leases() > 0 {
				t.Errorf("%d leases, left %v", p.resp.Leases(), left)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if tc.first == byTCP && writesByTCP(ctx, portOf(t, text), h.key) {
				t.Error("the old key still writes after the end of the lease")
			}
		})
	}
}

// listening returns the open listener and its address.
func (p *pairOfNodes) listening(node string) (ports []string) {
	p.t.Helper()
	sockets := map[string]bool{}
	for _, pid := range p.workers(node) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // empty: the process is gone
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil {
				sockets[strings.Trim(strings.TrimPrefix(to, "socket:"), "[]")] = true
			}
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			// Fields: sl local_address rem_address st … inode; 0A is LISTEN.
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && sockets[f[9]] {
				ports = append(ports, f[1])
			}
		}
	}
	return ports
}
