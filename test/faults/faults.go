// Package faults is the fault matrix: one row for each fault of an RDMA node, with how to plant it, the finding
// that must name it, and which findings may accompany it. It contains only data. Three runners read it:
//
//	cmd/railscope  plants Change in a captured machine, and Fabric in a pair of nodes on a fake fabric, examines twice
//	               through the real serve, and compares all surfaces (TestFaults, TestFaultsOfRounds)
//	cmd/railscope  gathers the facts of two machines, or of what is read by hand alone (TestFaultsByHand)
//	test/lab       plants Lab in two nodes with Soft-RoCE (TestFindings, TestProbeNames)
package faults

// Peer stands for the address of the peer in a finding.
const Peer = "PEER"

// Fault is one row. A finding is "severity check, subject".
type Fault struct {
	Name string
	Want string // the finding; empty: no fault, and no finding of severity warning or above may be raised

	// Beside are the other findings of severity warning or above that must be raised on the machine. The only
	// critical one among them may be the same fault, found by another check.
	Beside []string

	// Machine is a captured machine, doctor/testdata/Machine.txtar. Before and Change are changes of its files, and
	// of its kernel's answers, separated by "; ":
	//
	//	PATH = CONTENT   with \n, and \0 for a zero byte; a PCI configuration space is pci DEVCTL ACSCTL
	//	PATH -> TARGET   a symbolic link
	//	gone PATH
	//
	// The kernel's answers are below kernel/ (doctortest.Kernel): addresses, paths, gateways, pfc, pause, open, and
	// kmsg, qps and gpus; kernel/sampled has the sampler's data. log/ has NCCL's logs.
	Machine string
	Before  string // applied before railscope starts
	Change  string // the fault
	// Change is applied while railscope runs, after it saw the machine without the fault; otherwise before
	Later  bool
	Config string // railscope's configuration
	Rounds int    // number of rounds before a Later fault of the fabric; 0: one

	// ByHand is set for faults that only a command run by a user finds: kernel/qps and kernel/ucx (devices that
	// ucx_info lists) answer its reads.
	ByHand bool

	// Far is the change of a peer that is otherwise the same machine: doctor compares the two.
	Far string

	// Fabric plants the fault in rounds of node a with node b over two rails, by words of probetest.Pair.Plant.
	Fabric string

	Lab Lab
}

// Lab describes how a fault is planted in the lab, where node 1 is examined. Shell and Peer are scripts on nodes 1
// and 2.
type Lab struct {
	Shell, Peer string
	Cable       bool     // the cable of rail 1 of node 1 is pulled
	Later       bool     // planted while railscope runs: the change is the fault
	Asks        bool     // node 1 probes node 2: rounds find it
	Bench       bool     // a manual round finds it, over rails with the same rate
	Not         []string // checks that must not report it
	CI          bool     // part of the short lab
}

// In reports whether the fault is planted in the lab.
func (l Lab) In() bool { return l.Shell != "" || l.Peer != "" || l.Cable || l.Asks || l.Bench }
