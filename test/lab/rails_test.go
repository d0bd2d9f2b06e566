//go:build lab

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// shape is a rate at which the link, not the emulated CPUs, is the limit. Rails are not shaped unless a test does
// it.
const shape = "30mbit"

// gid is one entry of a port's GID table, as the kernel shows it.
type gid struct {
	index, address, netdev, kind string
}

// freshScript gets a node and the number of RDMA devices. Starting processes is slow on an emulated CPU, so each
// tool gets all its commands at once; a missing object is not an error.
const freshScript = `
node=$1 n=$2
for d in $(ls /sys/class/infiniband); do echo "link delete $d"; done | rdma -b -
for i in 0 1 2 3; do echo "qdisc delete dev rail$i root"; done | tc -force -batch - 2>/dev/null || true
{
	for b in $(</sys/class/net/bonding_masters); do echo "link delete $b"; done
	for i in 0 1 2 3; do
		echo "link set rail$i down"
		echo "link set rail$i name eth$i"
		echo "address flush dev eth$i"
		echo "neighbour flush dev eth$i"
		echo "link set eth$i mtu 4200 up"
		echo "address add 192.168.10$i.$node/24 dev eth$i"
	done
} | ip -batch -
for ((i = 0; i < n; i++)); do echo "link add rxe$i type rxe netdev eth$i"; done | rdma -b -
for ((i = 0; i < n; i++)); do
	cd "/sys/class/infiniband/rxe$i/ports/1"
	printf -v gid '0000:0000:0000:0000:0000:ffff:c0a8:%02x%02x' "$((100 + i))" "$node"
	until grep -q ACTIVE state && grep -q "$gid" gids/[0-9]; do
		((SECONDS < 20)) || { echo "rxe$i: state $(<state), GIDs $(echo $(cat gids/[0-9])); wanted $gid"; exit 1; }
		sleep .1
	done
done`

// freshRails brings both nodes to a known state after any earlier test: no bonds, netdevs eth0… with MTU 4200 and
// one IPv4 address each, and RDMA devices rxe0… on the first n of them, active, each with the GID of its address.
func freshRails(t *testing.T, n int) {
	t.Helper()
	var nodes []*process
	for _, nd := range []node{1, 2} {
		nodes = append(nodes, nd.Start(t, "bash", "-euo", "pipefail", "-c", freshScript, "fresh", fmt.Sprint(nd),
			fmt.Sprint(n)))
	}
	for _, p := range nodes {
		p.Wait(t, commandTime)
	}
}

// bond makes bond0 from eth0 and eth1. The address of eth0 moves to the bond, as in tutorials; that of eth1 is
// removed.
func bond(t *testing.T, n node, mode string, options ...string) {
	t.Helper()
	n.Shell(t, fmt.Sprintf(`
ip link add bond0 type bond mode %s miimon 100 %s
ip -batch - <<-end
	link set eth0 down
	link set eth1 down
	address flush dev eth0
	address flush dev eth1
	link set eth0 master bond0
	link set eth1 master bond0
	link set bond0 mtu 4200 up
	address add %s/24 dev bond0
end`, mode, strings.Join(options, " "), n.address(0)))
}

// limit shapes the traffic of both nodes over a rail.
func limit(t *testing.T, rail int, rate string) {
	t.Helper()
	for _, n := range []node{1, 2} {
		n.Run(t, "tc", "qdisc", "replace", "dev", fmt.Sprintf("eth%d", rail), "root",
			"tbf", "rate", rate, "burst", "64kb", "limit", "8mb")
	}
}

// meet resolves the nodes' addresses on a rail, so that a measurement does not start with ARP.
func meet(t *testing.T, rails ...int) {
	t.Helper()
	for _, rail := range rails {
		node(1).Run(t, "ping", "-q", "-c", "2", "-i", "0.2", "-w", "10", node(2).address(rail))
	}
}

// gids returns the entries of a device's GID table that are in use. rxe's table has 1024 entries: one process reads
// them all, because one process per entry would take half a minute on an emulated CPU.
func gids(t *testing.T, n node, device string) []gid {
	t.Helper()
	out := n.Shell(t, `cd /sys/class/infiniband/`+device+`/ports/1
grep -v '^[0:]*$' gids/* | while IFS=/: read -r _ i g; do
	echo "$i|$g|$(cat gid_attrs/ndevs/$i 2>/dev/null)|$(cat gid_attrs/types/$i 2>/dev/null)"
done`)
	var table []gid
	for _, line := range lines(out) {
		if f := strings.Split(line, "|"); len(f) == 4 {
			table = append(table, gid{f[0], f[1], f[2], f[3]})
		}
	}
	return table
}

// gidOf returns the GID of an IPv4 address (::ffff:a.b.c.d).
func gidOf(table []gid, address string) (gid, bool) {
	want := mapped(address)
	for _, g := range table {
		if g.address == want && g.kind == "RoCE v2" {
			return g, true
		}
	}
	return gid{}, false
}

// mapped formats an IPv4 address as the kernel formats GIDs.
func mapped(address string) string {
	var a, b, c, d int
	fmt.Sscanf(address, "%d.%d.%d.%d", &a, &b, &c, &d)
	return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a, b, c, d)
}
