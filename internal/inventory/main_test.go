package inventory_test

import (
	"testing"

	"github.com/railscope/railscope/internal/hungfs"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	testenv.Main(m)
}
