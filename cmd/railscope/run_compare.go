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
	"github.com/railscope/railscope/internal/nvml"
)

// overTCP returns the variables that keep NCCL and UCX from using RDMA.
func overTCP() []string {
	return []string{"NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "UCX_TLS=tcp,sm,self,cuda"}
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

// gpuMemory returns a function that reads the memory in use of each GPU, or none without GPUs.
func gpuMemory(session *nvml.Session) func() (map[string]int64, error) {
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
	return func() (map[string]int64, error) {
		_, gpus, err := reader.Read(gpuTime)
		if nvml.Absent(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		used := map[string]int64{}
		for _, g := range gpus {
			if g.Err == nil && g.Value >= 0 {
				used["GPU "+strconv.Itoa(g.Index)] = g.Value
			}
		}
		return used, nil
	}
}
