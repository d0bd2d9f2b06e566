package probe

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/railscope/railscope/internal/testenv"
	"github.com/railscope/railscope/probe/internal/node"
)

// TestMain also runs worker processes: the tests start their own binary for them.
func TestMain(m *testing.M) {
	if os.Getenv("RAILSCOPE_TEST_WORKER") != "" {
		os.Exit(node.WorkerMain())
	}
	// Most tests wait for something that hangs, so they may run in parallel on any number of processors.
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8")
	}
	testenv.Setup()
	os.Exit(m.Run())
}
