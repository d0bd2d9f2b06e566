// Package nixl runs nixlbench, the benchmark of NIXL, and explains failures. Flags and output are those of
// benchmark/nixlbench at 8770b655a (August 2026): src/utils/utils.cpp, src/runtime/, src/worker/worker.cpp.
package nixl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/internal/terminal"
)

// Settings apply to all combinations.
type Settings struct {
	Program string
	Peer    string // host name for messages
	Address string // IPv4 address of this node on which the initiator listens for the peer
	Port    int
	Etcd    string // URL; empty to run without etcd
	Group   string // group of the keys in etcd

	Op              string // WRITE or READ
	From, To, Batch int64  // smallest and largest block in bytes; blocks per batch
	Iterations      int
	Timeout         time.Duration // limit for one combination
}

// Combination is one run of nixlbench.
type Combination struct {
	Backend string   // UCX or LIBFABRIC
	Memory  string   // DRAM or VRAM
	Devices []string // devices that may be used; nil: all
	Threads int
}

func (c Combination) String() string {
	devices := "all rails"
	if len(c.Devices) > 0 {
		devices = strings.Join(c.Devices, ",")
	}
	return fmt.Sprintf("%s, %s, %s, %s", c.Backend, c.Memory, devices, terminal.Count(c.Threads, "thread"))
}

// Args returns the arguments of nixlbench, which are equal at both ends: the one that listens on the address, or
// reaches etcd first, becomes the initiator.
func (s Settings) Args(c Combination) []string {
	args := []string{"--runtime_type=ASIO", "--asio_address=" + s.Address, "--asio_port=" + strconv.Itoa(s.Port)}
	if s.Etcd != "" {
		args = []string{"--runtime_type=ETCD", "--etcd_endpoints=" + s.Etcd, "--benchmark_group=" + s.Group}
	}
	args = append(args, "--backend="+c.Backend, "--initiator_seg_type="+c.Memory, "--target_seg_type="+c.Memory,
		"--op_type="+s.Op, fmt.Sprintf("--start_block_size=%d", s.From), fmt.Sprintf("--max_block_size=%d", s.To),
		fmt.Sprintf("--start_batch_size=%d", s.Batch), fmt.Sprintf("--max_batch_size=%d", s.Batch),
		fmt.Sprintf("--num_iter=%d", s.Iterations), fmt.Sprintf("--num_threads=%d", c.Threads))
	if c.Threads > 1 {
		args = append(args, "--enable_pt", fmt.Sprintf("--progress_threads=%d", c.Threads))
	}
	if len(c.Devices) > 0 {
		args = append(args, "--device_list="+strings.Join(c.Devices, ","))
	}
	return args
}

// Blocks above largeBlock run fewer iterations.
const (
	largeBlock  = 1 << 20
	largeFactor = 16
)

// Ran returns the actual number of iterations for a block size: nixlbench rounds up to a multiple of 16 × threads, and
// divides by 16 above 1 MiB.
func (s Settings) Ran(block int64, threads int) int {
	part := largeFactor * threads
	n := (s.Iterations + part - 1) / part * part
	if block > largeBlock {
		n /= largeFactor
	}
	return n
}

// Row holds the results of one combination.
type Row struct {
	Combination Combination
	Results     []read.Result
	Rails       map[string]int64  // payload in both directions during the run, by rail; nil if unknown
	TCP         int64             // bytes of TCP over the rails' interfaces during the run
	Failure     string            // empty if it succeeded
	Causes      []string          // causes of the failure, or deviations from the settings
	devices     map[string]string // device by rail
}
