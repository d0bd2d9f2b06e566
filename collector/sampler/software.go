package sampler

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// softwareFiles are what bounds the RDMA of a software device: all bytes of its
// interface, and the packets that rxe sent and received
// (drivers/infiniband/sw/rxe/rxe_hw_counters.c, sent_pkts and rcvd_pkts). A
// packet has at most the interface's MTU, so that many bytes at most were RDMA
// and the rest at least was not. How many exactly nobody counts, so the sum of
// them is nobody's to tell. siw counts no packets: nothing is known of it.
type softwareFiles struct {
	bytes, packets [directions]file
	mtu            file
}

func newSoftwareFiles(open func(string) file, sysfsRoot string, r rail.Rail) *softwareFiles {
	netdev := filepath.Join(sysfsRoot, "class/net", r.Netdev)
	hw := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port), "hw_counters")
	return &softwareFiles{
		bytes:   [directions]file{open(filepath.Join(netdev, "statistics/rx_bytes")), open(filepath.Join(netdev, "statistics/tx_bytes"))},
		packets: [directions]file{open(filepath.Join(hw, "rcvd_pkts")), open(filepath.Join(hw, "sent_pkts"))},
		mtu:     open(filepath.Join(netdev, "mtu")),
	}
}

// read reads all of them: the bytes first, so that RDMA of the moment between
// makes what is certain less, not more.
func (s *softwareFiles) read(buf []byte) (look tcpReading) {
	look.ok, look.at = true, time.Now()
	read := func(f file) (v uint64) {
		c := counter{paths: []string{""}, scale: 1, files: []file{f}}
		v, opens, err := c.read(buf)
		look.ok = look.ok && err == nil
		look.opens += opens
		return v
	}
	for d := range s.bytes {
		look.values[d] = read(s.bytes[d])
		look.rdma[d] = read(s.packets[d])
	}
	look.mtu = read(s.mtu)
	return look
}

func (s *softwareFiles) close() {
	for d := range s.bytes {
		s.bytes[d].Close()
		s.packets[d].Close()
	}
	s.mtu.Close()
}
