package facts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// UCX lists the transports that UCX can use on this node, according to ucx_info.
type UCX struct {
	Path       string         `json:"path"` // path of ucx_info; empty if it was not run
	Transports []UCXTransport `json:"transports" max:"512"`
}

// UCXTransport is one transport of UCX on one device.
type UCXTransport struct {
	Name   string `json:"name"`   // such as rc_mlx5
	Device string `json:"device"` // such as mlx5_0:1
}

const (
	ucxTime      = 2 * time.Second
	maxUCXOutput = 1 << 20 // bytes; ucx_info prints about 2 KiB for each transport of a device
)

// readUCX runs ucx_info. It opens every RDMA device and one queue pair per transport, so only a command that a user
// runs does this.
func (g *Gatherer) readUCX(ctx context.Context) work {
	if g.kernel.UCXInfo == nil {
		return nil
	}
	return func(r *reader) func(*Facts) {
		path, output, err := g.kernel.UCXInfo(ctx)
		switch {
		case path == "":
			return nil
		case err != nil:
			r.say("transports of UCX: %s -d: %v; run it by hand", path, err)
			return nil
		}
		u := UCX{Path: clean(path), Transports: parseUCXInfo(output)}
		return func(f *Facts) { f.UCX = u }
	}
}

// parseUCXInfo parses "#      Transport: rc_mlx5", which is followed by "#         Device: mlx5_0:1"
// (print_iface_info in src/tools/info/tl_info.c of UCX).
func parseUCXInfo(output string) (list []UCXTransport) {
	name := ""
	for line := range strings.Lines(output) {
		key, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "#")), ":")
		switch value = strings.TrimSpace(value); {
		case key == "Transport":
			name = value
		case key == "Device" && name != "":
			one := UCXTransport{clean(name), clean(value)}
			if len(list) < 512 && !slices.Contains(list, one) {
				list = append(list, one)
			}
			name = ""
		}
	}
	return list
}

// runUCXInfo runs the ucx_info in PATH, or in the directories of HPC-X and distributions. It disables CUDA, which may
// take seconds, and drops this process's UCX variables, which would hide devices.
func runUCXInfo(ctx context.Context) (path, output string, err error) {
	path, err = exec.LookPath("ucx_info")
	for _, dir := range []string{"/usr/bin", "/opt/ucx/bin", "/opt/hpcx/ucx/bin", "/opt/mellanox/hpcx/ucx/bin"} {
		if file := filepath.Join(dir, "ucx_info"); err != nil && unix.Access(file, unix.X_OK) == nil {
			path, err = file, nil
		}
	}
	if err != nil {
		return "", "", nil // not installed
	}
	ctx, cancel := context.WithTimeout(ctx, ucxTime)
	defer cancel()
	var out limitedBuffer
	cmd := exec.CommandContext(ctx, path, "-d")
	cmd.Env = []string{"UCX_MODULES=^cuda,rocm,ze", "UCX_WARN_UNUSED_ENV_VARS=n"}
	if libraries := os.Getenv("LD_LIBRARY_PATH"); libraries != "" { // HPC-X sets it
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+libraries)
	}
	cmd.Stdout, cmd.WaitDelay = &out, ucxTime/4
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no result within %v", ucxTime)
	}
	return path, string(out.text), err
}

// limitedBuffer keeps the first bytes that are written.
type limitedBuffer struct{ text []byte }

// Write implements [io.Writer]. It accepts and drops the rest, so that the program does not fail.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxUCXOutput-len(b.text))]...)
	return len(p), nil
}
