// Package faults is the fault matrix: one row for each fault of an RDMA node, with how to plant it, the finding that
// must name it, and what may stand beside that. It is data alone. Three runners read it:
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
	Want string // the finding; empty: nothing is wrong, and no finding of severity warning or above may stand

	// Beside are the other findings of severity warning or above that must stand on the machine. The only critical one
	// among them may be the same fault seen by another check.
	Beside []string

	// Machine is a captured machine, doctor/testdata/Machine.txtar. Before and Change are changes of its files, and of
	// what its kernel answers, separated by "; ":
	//
	//	PATH = CONTENT   with \n, and \0 for a zero byte; a PCI configuration space is pci DEVCTL ACSCTL
	//	PATH -> TARGET   a symbolic link
	//	gone PATH
	//
	// The kernel's answers are below kernel/ (doctortest.Kernel): addresses, paths, gateways, pfc, pause, open, and
	// kmsg, qps and gpus; kernel/sampled has what the sampler saw. log/ has NCCL's logs.
	Machine string
	Before  string // is made before railscope starts
	Change  string // the fault
	Later   bool   // it is planted while railscope runs, which saw the machine without it; else before
	Config  string // of railscope
	Rounds  int    // of a Later fault of the fabric: those before it; 0: one

	// ByHand is set for what only a command that a user runs examines: kernel/qps and kernel/ucx (devices that ucx_info
	// lists) answer for what it reads.
	ByHand bool

	// Far is the change of a peer that is the same machine otherwise: doctor compares the two.
	Far string

	// Fabric plants the fault in rounds of node a with node b over two rails, by words of probetest.Pair.Plant.
	Fabric string

	Lab Lab
}

// Lab is how a fault is planted in the lab, where node 1 is examined. Shell and Peer are scripts on node 1 and 2.
type Lab struct {
	Shell, Peer string
	Cable       bool     // the cable of rail 1 of node 1 is pulled
	Later       bool     // it is planted while railscope runs: the fault is what it saw
	Asks        bool     // node 1 asks node 2: rounds find it
	Bench       bool     // a round by hand finds it, over rails that have the same rate
	Not         []string // checks that must not name it
	CI          bool     // it is part of the short lab
}

// In reports whether the fault is planted in the lab.
func (l Lab) In() bool { return l.Shell != "" || l.Peer != "" || l.Cable || l.Asks || l.Bench }
