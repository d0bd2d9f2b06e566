//go:build lab

package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// burst is one run of ib_write_bw from node 1 to node 2.
type burst struct {
	rail     int
	messages int
	size     int      // bytes of payload in a message
	timeout  int      // timeout of an acknowledgement: 4.096 µs × 2^timeout; 0: patientTimeout
	depth    int      // messages in flight; 0: 128
	through  []string // command that starts the client; empty: the lab
}

// patientTimeout is 4 s: an emulated CPU that is late must not look like a loss.
const patientTimeout = 20

// RoCE v2 at a path MTU of 4096: bytes that the netdev counts for a packet in addition to its payload. Ethernet 14,
// IPv4 20, UDP 8, BTH 12, ICRC 4; the first packet of an RDMA write also has the RETH of 16. Preamble, FCS and gap
// belong to the hardware and are not counted.
const (
	pathMTU     = 4096
	packetExtra = 14 + 20 + 8 + 12 + 4
	writeExtra  = 16
)

func (b burst) packets() int { return b.messages * ((b.size + pathMTU - 1) / pathMTU) }

// wireBytes returns the bytes that the sender's netdev counts for the burst without loss.
func (b burst) wireBytes() int {
	return b.messages*(b.size+writeExtra) + b.packets()*packetExtra
}

// send runs the burst and returns its mean rate in bytes per second. The two ends coordinate over the control
// segment, so that the rail carries only RDMA.
func (b burst) send(t *testing.T) float64 {
	t.Helper()
	return b.start(t)()
}

// start starts the burst; the function that it returns waits for its end.
func (b burst) start(t *testing.T) func() float64 {
	t.Helper()
	client, server := b.begin(t)
	return func() float64 {
		t.Helper()
		out := client.Wait(t, 2*time.Minute)
		server.Wait(t, commandTime)
		return averageRate(t, out, b.size)
	}
}

// begin starts the burst, as two processes.
func (b burst) begin(t *testing.T) (client, server *process) {
	t.Helper()
	device := fmt.Sprintf("rxe%d", b.rail)
	argv := func(n node) []string {
		g, ok := gidOf(gids(t, n, device), n.address(b.rail))
		if !ok {
			t.Fatalf("node %d: %s has no GID for %s", n, device, n.address(b.rail))
		}
		return []string{"ib_write_bw", "-d", device, "-x", g.index, "-m", strconv.Itoa(pathMTU), "-F",
			"-s", strconv.Itoa(b.size), "-n", strconv.Itoa(b.messages), "-t", strconv.Itoa(cmp.Or(b.depth, 128)), "-Q",
			strconv.Itoa(min(cmp.Or(b.depth, 128), 100)),
			"-u", strconv.Itoa(cmp.Or(b.timeout, patientTimeout)), "-p", strconv.Itoa(18515 + b.rail)}
	}
	server = node(2).Start(t, argv(2)...)
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", fmt.Sprintf("sport = :%d", 18515+b.rail)) == "" {
			return fmt.Errorf("ib_write_bw does not listen")
		}
		return nil
	})
	return node(1).Start(t, slices.Concat(b.through, argv(1), []string{node(2).control()})...), server
}

// flow is traffic from node 1 to node 2 over some rails, until it is stopped.
type flow struct{ clients, servers []*process }

// startFlow starts a flow with few bytes in flight, so that it ends at once: data left in a shaper would be foreign
// traffic for the next measurement.
func startFlow(t *testing.T, rails ...int) flow {
	t.Helper()
	return startFlowLike(t, burst{size: 64 << 10, depth: 8}, rails...)
}

// startFlowLike takes size, depth and timeout from a burst.
func startFlowLike(t *testing.T, b burst, rails ...int) (f flow) {
	t.Helper()
	b.messages = 2000000 // an hour, with pauses
	for _, b.rail = range rails {
		client, server := b.begin(t)
		f.clients, f.servers = append(f.clients, client), append(f.servers, server)
	}
	return f
}

// signal sends a signal to the senders of all rails at the same moment.
func (f flow) signal(t *testing.T, signal string) {
	t.Helper()
	argv := []string{"kill", "-" + signal}
	for _, p := range f.clients {
		argv = append(argv, strconv.Itoa(p.PID))
	}
	node(1).Run(t, argv...)
}

func (f flow) stop() {
	for _, p := range append(slices.Clone(f.clients), f.servers...) {
		p.kill()
	}
}

// averageRate parses the table of ib_write_bw: bytes, iterations, peak, average in MB/s of 2^20.
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
