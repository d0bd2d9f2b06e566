package lldp

import (
	"os"
	"testing"

	"github.com/railscope/railscope/internal/testenv"
)

// TestMain runs the helper if this process was started as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		os.Exit(HelperMain())
	}
	testenv.Main(m)
}
