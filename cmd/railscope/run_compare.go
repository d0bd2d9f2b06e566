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

// overTCP are the variables that keep NCCL and UCX from RDMA.
func overTCP() []string {
	return []string{"NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "UCX_TLS=tcp,sm,self,cuda"}
}

// compare runs the command over RDMA and over TCP in turn.
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
		var figure *float64
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			figure = &v
		}
		if runs = append(runs, record.NewRun(transport, rec, figure)); rec.ExitCode != 0 {
			break
		}
	}
	c := record.NewComparison(r.settings.command, runs)
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

// gpuTime is how long a reading of the GPUs may take.
const gpuTime = time.Second

// gpuMemory returns a function that reads the memory in use of each GPU; without GPUs there is none.
func gpuMemory(session *nvml.Session) func() (map[string]int64, error) {
	reader := nvml.NewReader(session, func(g nvml.GPU) (int64, error) {
		m, err := g.Memory()
		if err != nil {
			if nvml.Unreachable(err) {
				return -1, err
			}
			return -1, nil // it has none of its own: GB10
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
