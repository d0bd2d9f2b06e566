package probe

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/railscope/railscope/internal/testenv"
)

// TestMain also runs worker processes: the tests start their own binary for them.
func TestMain(m *testing.M) {
	if os.Getenv("RAILSCOPE_TEST_WORKER") != "" {
		os.Exit(WorkerMain())
	}
	// Most tests wait for something that hangs: they may do so side by side, however
	// few processors there are.
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "8")
	}
	testenv.Setup()
	os.Exit(m.Run())
}
