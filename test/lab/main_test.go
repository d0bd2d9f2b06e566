//go:build lab

package lab

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestMain is the program of both nodes: node 2 only runs its agent; node 1 runs an agent and the tests.
func TestMain(m *testing.M) {
	self, err := strconv.Atoi(os.Getenv("NODE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: these tests run inside a lab node: use lab/run.sh")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", node(self).agent())
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab: agent:", err)
		os.Exit(1)
	}
	if self == 2 {
		fmt.Fprintln(os.Stderr, "lab: agent:", serveAgent(l))
		os.Exit(1)
	}
	go serveAgent(l)
	if err := awaitAgent(2, time.Minute); err != nil {
		fmt.Fprintln(os.Stderr, "lab: node 2 did not come up:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func awaitAgent(n node, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(poll) {
		_, err := n.Try("true")
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
