package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/sysfs"
)

// packagedState is the state directory of the packages' unit, below --path.rootfs.
const packagedState = "var/lib/railscope"

// errAlone is the error of a node on which no railscope answers, or not this user. It is always wrapped.
var errAlone = errors.New("no running railscope answers")

// socketDir is where the railscope of this machine has its socket: --state.dir, else the directory of the packages. One
// that reads a tree instead of sysfs, as the demo does, has it beside the tree.
func (c *common) socketDir() string {
	switch {
	case c.stateDir != "":
		return c.stateDir
	case sysfs.Live(filepath.Join(c.sysfs, "class/net")):
		return filepath.Join(c.rootfs, packagedState)
	}
	return filepath.Dir(c.sysfs)
}

// runningStatus asks the railscope that runs on this machine. Its error wraps errAlone where there is none.
func (c *common) runningStatus(ctx context.Context, timeout time.Duration) (*status.Status, error) {
	s, err := status.Get(ctx, statussock.Client(c.socketDir(), timeout), statussock.URL+status.Path, nil)
	for _, none := range []error{statussock.ErrNotRunning, os.ErrPermission, syscall.EINVAL, syscall.ENOTDIR} {
		if errors.Is(err, none) {
			return nil, errors.Join(errAlone, err)
		}
	}
	return s, err
}
