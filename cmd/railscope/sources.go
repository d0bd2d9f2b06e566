package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/internal/serve"
)

// sourceSettings are the flags of the sources.
type sourceSettings struct {
	serve.Sources
	nvml string
}

// define defines the flags of all sources or, with once, of those for which a single read is enough.
func (s *sourceSettings) define(cmd *kingpin.CmdClause, once bool) {
	s.Sources = serve.DefaultSources()
	for _, source := range serve.SourceList() {
		on := s.On[source.Name]
		if once && slices.Contains(serve.Followers(), source.Name) {
			*on = false
		} else {
			cmd.Flag("source."+source.Name, "Read "+source.Reads+".").Default(strconv.FormatBool(source.On)).BoolVar(on)
		}
	}
	if !once {
		s.defineFollowers(cmd)
	}
	cmd.Flag("source.process.limit", fmt.Sprintf("Maximum number of series of each metric of the process source, "+
		"from 2 to %d. The rest is summed up as other.", serve.MaxProcessSeries)).Default("256").IntVar(&s.ProcessLimit)
	cmd.Flag("source.gpu.processes", "Export the GPU memory of each process, by PID.").
		Default("false").BoolVar(&s.GPUProcesses)
	cmd.Flag("source.netdev.modules", "Read temperature and optical power of the modules of interfaces. Needs "+
		"CAP_NET_ADMIN.").Default("false").BoolVar(&s.Modules)
	cmd.Flag("path.nvml", "NVML library; by default libnvidia-ml.so.1, as the dynamic linker finds it.").
		PlaceHolder("FILE").StringVar(&s.nvml)
}

func (s *sourceSettings) defineFollowers(cmd *kingpin.CmdClause) {
	cmd.Flag("sample.interval", fmt.Sprintf("Time between two samples of the traffic of each rail, from %v to %v.",
		sampler.MinInterval, sampler.MaxInterval)).Default(sampler.DefaultInterval.String()).DurationVar(&s.Interval)
	cmd.Flag("nccl.log", "Pattern of NCCL log files to follow. Repeatable.").
		Default("/var/log/nccl/*.log").StringsVar(&s.NCCLLogs)
}

// check returns an error for values that the parser accepts but the sources do not.
func (s *sourceSettings) check() error {
	switch {
	case s.ProcessLimit < 2 || s.ProcessLimit > serve.MaxProcessSeries:
		return fmt.Errorf("--source.process.limit must be from 2 to %d, not %d", serve.MaxProcessSeries, s.ProcessLimit)
	case s.Interval < sampler.MinInterval || s.Interval > sampler.MaxInterval:
		return fmt.Errorf("--sample.interval must be from %v to %v, such as %v, not %v",
			sampler.MinInterval, sampler.MaxInterval, sampler.DefaultInterval, s.Interval)
	}
	return nil
}
