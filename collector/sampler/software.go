package sampler

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// softwareFiles are what bounds the RDMA of a software device: all bytes of its interface, and the packets that rxe
// sent and received (drivers/infiniband/sw/rxe/rxe_hw_counters.c, sent_pkts and rcvd_pkts). A packet has at most the
// interface's MTU, so that many bytes at most were RDMA and the rest was not. The exact part is not known. siw counts
// no packets: nothing is known of it.
type softwareFiles struct {
	port    *rail.Port // bytes and MTU
	packets [directions]rail.File
}

func newSoftwareFiles(open rail.OpenFile, sysfsRoot string, r rail.Rail) *softwareFiles {
	hw := filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port), "hw_counters")
	return &softwareFiles{
		port:    rail.NewPort(sysfsRoot, r, open),
		packets: [directions]rail.File{open(filepath.Join(hw, "rcvd_pkts")), open(filepath.Join(hw, "sent_pkts"))},
	}
}

// read reads all of them: the bytes first, so that RDMA of the moment between makes what is certain less, not more.
func (s *softwareFiles) read() (r tcpReading) {
	var buf [64]byte
	r.at = time.Now()
	for d := range s.packets {
		bytes, generation, err := s.port.Bytes(d)
		if err != nil || !s.port.BytesShared() {
			return tcpReading{}
		}
		text, err := s.packets[d].Read(buf[:])
		if err != nil {
			return tcpReading{}
		}
		if r.rdma[d], err = sysfs.ParseUint(text); err != nil {
			return tcpReading{}
		}
		r.values[d] = bytes
		r.opens += generation + s.packets[d].Opens()
	}
	mtu, _, err := s.port.MTU()
	r.mtu, r.ok = uint64(mtu), err == nil
	return r
}

func (s *softwareFiles) close() {
	s.port.Close()
	for _, f := range s.packets {
		f.Close()
	}
}
