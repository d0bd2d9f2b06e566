//go:build lab

package lab

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// burst is one run of ib_write_bw from node 1 to node 2.
type burst struct {
	rail     int
	messages int
	size     int // bytes of payload in a message
	timeout  int // of an acknowledgement: 4.096 µs × 2^timeout; 0 for patientTimeout
}

// patientTimeout is 4 s: an emulated CPU that is late must not look like a
// loss.
const patientTimeout = 20

// RoCE v2 at a path MTU of 4096: what the netdev counts for a packet beside
// its payload. Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4; the first packet of
// an RDMA write has the RETH of 16 too. Preamble, FCS and gap are the
// hardware's and are not counted.
const (
	pathMTU     = 4096
	packetExtra = 14 + 20 + 8 + 12 + 4
	writeExtra  = 16
)

func (b burst) packets() int { return b.messages * ((b.size + pathMTU - 1) / pathMTU) }

// wireBytes is what the sender's netdev counts for the burst when nothing is
// lost.
func (b burst) wireBytes() int {
	return b.messages*(b.size+writeExtra) + b.packets()*packetExtra
}

// send runs the burst and returns its average rate in bytes per second. The
// two ends talk to each other over the control segment, so that the rail
// carries nothing but RDMA.
func (b burst) send(t *testing.T) float64 {
	t.Helper()
	return b.start(t)()
}

// start starts the burst; the function it returns waits for its end.
func (b burst) start(t *testing.T) func() float64 {
	t.Helper()
	device := fmt.Sprintf("rxe%d", b.rail)
	argv := func(n node) []string {
		g, ok := gidOf(gids(t, n, device), n.address(b.rail))
		if !ok {
			t.Fatalf("node %d: %s has no GID for %s", n, device, n.address(b.rail))
		}
		return []string{"ib_write_bw", "-d", device, "-x", g.index, "-m", strconv.Itoa(pathMTU), "-F",
			"-s", strconv.Itoa(b.size), "-n", strconv.Itoa(b.messages),
			"-u", strconv.Itoa(cmp.Or(b.timeout, patientTimeout)), "-p", strconv.Itoa(18515 + b.rail)}
	}
	server := node(2).Start(t, argv(2)...)
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", fmt.Sprintf("sport = :%d", 18515+b.rail)) == "" {
			return fmt.Errorf("ib_write_bw does not listen")
		}
		return nil
	})
	client := node(1).Start(t, append(argv(1), node(2).control())...)
	return func() float64 {
		t.Helper()
		out := client.Wait(t, 2*time.Minute)
		server.Wait(t, commandTime)
		return averageRate(t, out, b.size)
	}
}

// averageRate reads the table of ib_write_bw: bytes, iterations, peak, average
// in MB/s of 2^20.
func averageRate(t *testing.T, out string, size int) float64 {
	t.Helper()
	for _, line := range lines(out) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[0] == strconv.Itoa(size) {
			mb, err := strconv.ParseFloat(f[3], 64)
			if err == nil {
				return mb * (1 << 20)
			}
		}
	}
	t.Fatalf("no result in what ib_write_bw said:\n%s", out)
	return 0
}
