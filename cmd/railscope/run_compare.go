package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
)

// overTCP returns the variables that keep NCCL, RCCL and UCX from using RDMA.
func overTCP() []string {
	return []string{"NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "UCX_TLS=tcp,sm,self,cuda,rocm"}
}

// compare runs the command over RDMA and over TCP alternately.
func (r *runner) compare(w io.Writer) error {
	var runs []record.Run
	for n := range 2 * r.settings.repeat {
		transport, env := record.RDMA, []string(nil)
		if n%2 == 1 {
			transport, env = record.TCP, overTCP()
		}
		fmt.Fprintf(os.Stderr, "railscope: run %d of %d, %s\n", n+1, 2*r.settings.repeat, transport)
		rec, text, err := r.once(env)
		if err != nil {
			return err
		}
		runs = append(runs, record.NewRun(transport, rec, record.ParseFigure(text)))
		if rec.ExitCode != 0 {
			break
		}
	}
	c := record.NewComparison(shownCommand(r.settings.command), runs)
	err := errors.Join(c.WriteTable(os.Stderr, isTerminal(os.Stderr)), r.settings.writeJSON(w, c.WriteJSON),
		r.settings.reports.write(context.Background(), "run", c.WriteJSON))
	if err != nil {
		return err
	}
	if code := runs[len(runs)-1].ExitCode; code != 0 {
		return exitStatus(code)
	}
	return nil
}

// gpuTime is the time limit of a reading of the GPUs.
const gpuTime = time.Second

// gpuMemory returns a function that reads the memory in use of each GPU that has memory of its own.
func gpuMemory(session *nvml.Session, sysfs, procfs string) func() (map[string]int64, error) {
	reader := nvml.NewReader(session, func(g nvml.GPU) (int64, error) {
		m, err := g.Memory()
		if err != nil {
			if nvml.Unreachable(err) {
				return -1, err
			}
			return -1, nil // GB10 has no memory of its own
		}
		return int64(m.Used), nil
	})
	finder := amdgpu.NewFinder(sysfs)
	var lanes lane.Lanes[amdgpu.GPU, int64]
	return func() (map[string]int64, error) {
		_, gpus, err := reader.Read(gpuTime)
		if nvml.Absent(err) {
			err = nil
		}
		used := map[string]int64{}
		for _, g := range gpus {
			if g.Err == nil && g.Value >= 0 {
				used["GPU "+strconv.Itoa(g.Index)] = g.Value
			}
		}
		amd, amdErr := finder.GPUs(time.Now())
		for _, res := range lanes.Run(gpuTime, amd, func(g amdgpu.GPU) int64 {
			m, err := g.Memory(procfs)
			if err != nil || m.Shared {
				return -1
			}
			return int64(m.Used)
		}) {
			if res.State == lane.Done && res.Value >= 0 {
				used["GPU "+strconv.Itoa(res.Key.Index)] = res.Value
			}
		}
		return used, errors.Join(err, amdErr)
	}
}
