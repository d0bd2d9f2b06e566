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

// packagedState is the state directory of the packaged unit, below --path.rootfs.
const packagedState = "var/lib/railscope"

// errNoDaemon is returned when no railscope answers on this node, or not to this user. Always wrapped.
var errNoDaemon = errors.New("no running railscope answers")

// socketDir returns the directory with the socket of this machine's railscope: --state.dir, else that of the
// packages. A railscope that reads a tree instead of sysfs, such as the demo, has its socket beside the tree.
func (c *common) socketDir() string {
	switch {
	case c.stateDir != "":
		return c.stateDir
	case sysfs.Live(filepath.Join(c.Sysfs, "class/net")):
		return filepath.Join(c.Rootfs, packagedState)
	}
	return filepath.Dir(c.Sysfs)
}

// runningStatus asks the railscope that runs on this machine for its status. Its error wraps errNoDaemon if there is
// none.
func (c *common) runningStatus(ctx context.Context, timeout time.Duration) (*status.Status, error) {
	s, err := status.Get(ctx, statussock.Client(c.socketDir(), timeout), statussock.URL+status.Path, nil)
	if none := alone(err); none != nil {
		return nil, none
	}
	return s, err
}

// alone wraps an error with errNoDaemon if no railscope answers, or not to this user; else it returns nil.
func alone(err error) error {
	for _, none := range []error{statussock.ErrNotRunning, os.ErrPermission, syscall.EINVAL, syscall.ENOTDIR} {
		if errors.Is(err, none) {
			return errors.Join(errNoDaemon, err)
		}
	}
	return nil
}
