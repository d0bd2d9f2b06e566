package probe

import (
	"os"
	"testing"
)

// TestMain is also the program of worker processes: the tests start their own
// binary for them.
func TestMain(m *testing.M) {
	if os.Getenv("RAILSCOPE_TEST_WORKER") != "" {
		os.Exit(WorkerMain())
	}
	os.Exit(m.Run())
}
