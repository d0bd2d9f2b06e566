package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/demo"
	exporterhttp "github.com/railscope/railscope/exporter/http"
)

// settings is the command line, parsed.
type settings struct {
	command       string
	configFile    string
	nodeName      string
	stateDir      string
	forget        string // of rails
	sysfs, procfs string
	rootfs        string
	nvml          string
	format        string // of rails and bench: table or json; of doctor: text or json
	bench         benchSettings
	doctor        doctorSettings
	demo          demoSettings
	telemetryPath string
	lifecycle     bool          // a reload may be asked for by HTTP
	connections   int           // to the web port, at a time
	interval      time.Duration // between samples
	gpuProcesses  bool
	processLimit  int
	ncclLogs      []string
	procs         int
	web           *web.FlagConfig
	log           promslog.Config
	collectors    map[string]*bool // by source name
}

// benchSettings are the flags of bench; what is zero the configuration says.
type benchSettings struct {
	peer, tokenFile, transfer, chunk string
	depth, latencySamples            int
	minOfExpected                    float64
	minGiven                         bool
	timeout                          time.Duration
}

// doctorSettings are the flags of doctor.
type doctorSettings struct {
	peer, tokenFile string
	peerGiven       bool
}

// demoSettings are the flags of demo.
type demoSettings struct {
	listen        string
	degrade, fail []string
	fallback      bool
	failAfter     time.Duration
	failAfterSet  bool    // by hand
	rate          float64 // Gb/s
}

// sourceFlags are the sources there are, in the order of their flags.
var sourceFlags = []struct {
	name, reads string
	off         bool // unless asked for
}{
	{"rdma", "state, rate, counters and GIDs of RDMA ports", false},
	{"bond", "bonds, their members and LACP", false},
	{"netdev", "network interfaces of rails and bond members: PFC, discards, ECN, carrier", false},
	{"pcie", "PCIe links of rails and GPUs", false},
	{"gpu", "GPU memory, errors, clocks and power, by NVML", false},
	{"gpudirect", "how RDMA can reach GPU memory", false},
	{"process", "which processes hold which queue pairs and how much GPU memory, with their pods; needs the host's pid namespace", true},
	{"nccl", "the log files of NCCL that --nccl.log means: network, GPUDirect RDMA, channels, warnings", true},
	{"sampler", "what rails carry between scrapes, every --sample.interval, and what changes from second to second", false},
}

// twin gives every flag its environment variable: --path.sysfs is
// RAILSCOPE_PATH_SYSFS.
type twin struct {
	flags interface {
		Flag(name, help string) *kingpin.FlagClause
	}
}

func (t twin) Flag(name, help string) *kingpin.FlagClause {
	return t.flags.Flag(name, help).Envar(variable(name))
}

// format is a flag whose values differ from command to command, and so has the
// command in its variable: a value for one must not break another.
func format(cmd *kingpin.CmdClause, to *string, usual, other string) {
	cmd.Flag("format", usual+" or "+other+".").Envar(variable(cmd.FullCommand()+"-format")).Default(usual).EnumVar(to, usual, other)
}

func variable(flag string) string {
	return "RAILSCOPE_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(flag))
}

// application is the command line, which parses into s.
func application(s *settings) *kingpin.Application {
	*s = settings{collectors: map[string]*bool{}, log: promslog.Config{Level: promslog.NewLevel(), Format: promslog.NewFormat()}}
	app := kingpin.New("railscope", "See what the RDMA rails of this node really do.\n\nEvery flag can be set by an environment variable too: --path.sysfs by RAILSCOPE_PATH_SYSFS.")
	app.Version(version.Print("railscope"))
	app.HelpFlag.Short('h')
	app.UsageWriter(os.Stdout) // help that was asked for is no error
	app.UsageTemplate(usage)
	all := twin{app}
	all.Flag("config.file", "Configuration file (YAML): which ports are rails, how they are called, and whom to probe. Without it every port that is not a virtual function is a rail, and nobody is probed.").PlaceHolder("FILE").StringVar(&s.configFile)
	all.Flag("node.name", "What this node calls itself to peers, where probe.name in the configuration does not say. Without it, the host's name.").PlaceHolder("NAME").StringVar(&s.nodeName)
	all.Flag("state.dir", "Directory that keeps what must outlive a restart: which rail has which number. serve writes it, other commands read it. Empty: numbers hold for as long as the process does.").PlaceHolder("DIR").StringVar(&s.stateDir)
	all.Flag("path.sysfs", "Where sysfs is mounted.").Default("/sys").StringVar(&s.sysfs)
	all.Flag("path.procfs", "Where procfs is mounted.").Default("/proc").StringVar(&s.procfs)
	all.Flag("path.rootfs", "Where the host's root file system is mounted.").Default("/").StringVar(&s.rootfs)
	all.Flag("log.level", "Least severe messages to log: debug, info, warn or error.").Default("info").SetValue(s.log.Level)
	all.Flag("log.format", "Form of the log: logfmt or json.").Default("logfmt").SetValue(s.log.Format)

	cmd := app.Command("serve", "Serve metrics (the default command).").Default()
	only := twin{cmd}
	s.web = kingpinflag.AddFlags(only, ":10091")
	only.Flag("web.telemetry-path", "Path of the metrics.").Default("/metrics").StringVar(&s.telemetryPath)
	only.Flag("web.max-connections", "Connections to the web port at a time; one address has at most half of them. What comes beyond is closed and counted.").Default(strconv.Itoa(exporterhttp.DefaultMaxConnections)).IntVar(&s.connections)
	only.Flag("web.enable-lifecycle", "Let POST and PUT to /-/reload read the configuration again. SIGHUP always does.").Default("false").BoolVar(&s.lifecycle)
	for _, src := range sourceFlags {
		s.collectors[src.name] = only.Flag("collector."+src.name, "Read "+src.reads+".").Default(strconv.FormatBool(!src.off)).Bool()
	}
	only.Flag("sample.interval", fmt.Sprintf("Time between two samples of what each rail carries, from %v to %v.", sampler.MinInterval, sampler.MaxInterval)).Default(sampler.DefaultInterval.String()).DurationVar(&s.interval)
	only.Flag("collector.process.limit", fmt.Sprintf("Series of one metric of the process source at most, from 2 to %d; the rest is summed as other.", maxProcessSeries)).Default("256").IntVar(&s.processLimit)
	only.Flag("collector.gpu.processes", "Export the GPU memory of each process, by pid.").Default("false").BoolVar(&s.gpuProcesses)
	only.Flag("nccl.log", "Log files of NCCL to follow, as a pattern; may be given more than once.").Default("/var/log/nccl/*.log").StringsVar(&s.ncclLogs)
	only.Flag("runtime.gomaxprocs", "Processors to use at once. One is enough, and costs less than two.").Default("1").IntVar(&s.procs)
	only.Flag("path.nvml", "NVML library; by default libnvidia-ml.so.1, wherever the dynamic linker finds it.").PlaceHolder("FILE").StringVar(&s.nvml)

	list := app.Command("rails", "List the rails: device, port, netdev, state, rate, capacity, the GID that would be used, and why.")
	format(list, &s.format, "table", "json")
	list.Flag("forget", "Forget the rail of this name for good, in --state.dir, while no railscope serves. See docs/rails.md.").PlaceHolder("NAME").StringVar(&s.forget)

	cmdBench := app.Command("bench", "Probe one peer now: RDMA over every rail, alone and striped, and TCP for comparison. Exits with 0 when all rails carried what they should, 1 when one did not, or when it was by TCP or not at all.")
	b := twin{cmdBench}
	cmdBench.Arg("peer", "The peer, host or host:port: a railscope that answers probes (probe.listen in its configuration).").Required().StringVar(&s.bench.peer)
	b.Flag("token-file", "File with the secret that all peers share.").PlaceHolder("FILE").StringVar(&s.bench.tokenFile)
	b.Flag("transfer", "Bytes of a striped burst, such as 64MiB.").PlaceHolder("SIZE").StringVar(&s.bench.transfer)
	b.Flag("chunk", "Bytes of one write, such as 1MiB.").PlaceHolder("SIZE").StringVar(&s.bench.chunk)
	b.Flag("depth", "Chunks in flight per rail.").PlaceHolder("N").IntVar(&s.bench.depth)
	b.Flag("latency-samples", "Writes of 8 B per rail.").PlaceHolder("N").IntVar(&s.bench.latencySamples)
	b.Flag("min-of-expected", "With less goodput than this part of what is expected, of a rail or of all together, the exit code is 1 (more than 0, at most 1; 0.7).").PlaceHolder("RATIO").IsSetByUser(&s.bench.minGiven).Float64Var(&s.bench.minOfExpected)
	b.Flag("timeout", "How long all of it may take.").Default("1m").DurationVar(&s.bench.timeout)
	format(cmdBench, &s.format, "table", "json")

	cmdDoctor := app.Command("doctor", "Look for what is wrong with the rails of this node, and, with --peer, between two nodes: each finding with what was read, why it matters and the command that mends it. Exits with 1 when there is a fault.")
	d := twin{cmdDoctor}
	d.Flag("peer", "Look at this node too, host or host:port, and compare: a railscope that answers probes (probe.listen in its configuration).").PlaceHolder("HOST").IsSetByUser(&s.doctor.peerGiven).StringVar(&s.doctor.peer)
	d.Flag("token-file", "File with the secret that all peers share.").PlaceHolder("FILE").StringVar(&s.doctor.tokenFile)
	format(cmdDoctor, &s.format, "text", "json")

	cmdDemo := app.Command("demo", "Show two simulated nodes at work, on any machine: rails are shaped TCP connections on this machine, GPUs and the job on them are made up. See docs/demo.md.")
	m := twin{cmdDemo}
	m.Flag("web.listen-address", "Where the first node serves; the second does on the next port.").Default(":10091").StringVar(&s.demo.listen)
	m.Flag("rate", "What each rail claims and carries, in Gb/s, from 0.1 to 100; less than the default for a machine that does not keep up.").Default(fmt.Sprint(demo.Rate)).Float64Var(&s.demo.rate)
	m.Flag("degrade", "Slow a rail down to this part of its rate, such as rail1=0.3; may be given more than once.").PlaceHolder("RAIL=PART").StringsVar(&s.demo.degrade)
	m.Flag("fallback", "Let no RDMA through: job and probe go by TCP.").BoolVar(&s.demo.fallback)
	m.Flag("fail", "Take the port of a rail of the first node down, such as rail0; may be given more than once.").PlaceHolder("RAIL").StringsVar(&s.demo.fail)
	m.Flag("fail-after", "When it goes down. A Prometheus must have seen the rail up, because a port that never was is nobody's loss.").Default("1m").IsSetByUser(&s.demo.failAfterSet).DurationVar(&s.demo.failAfter)
	return app
}

// parse parses the command line. Its errors are misuse.
func parse(args []string) (s settings, err error) {
	app := application(&s)
	command, err := app.Parse(args)
	if err != nil {
		return s, misuse{explain(err, app, args)}
	}
	if s.command = command; s.command == "serve" && (!strings.HasPrefix(s.telemetryPath, "/") || strings.HasPrefix(s.telemetryPath, "/-/") || strings.ContainsAny(s.telemetryPath, "{} ")) {
		return s, misuse{fmt.Errorf("--web.telemetry-path must be a path that begins with / and not with /-/, such as /metrics, not %q", s.telemetryPath)}
	}
	if s.command == "serve" && (s.processLimit < 2 || s.processLimit > maxProcessSeries) {
		return s, misuse{fmt.Errorf("--collector.process.limit must be from 2 to %d, not %d", maxProcessSeries, s.processLimit)}
	}
	if s.command == "serve" && (s.interval < sampler.MinInterval || s.interval > sampler.MaxInterval) {
		return s, misuse{fmt.Errorf("--sample.interval must be from %v to %v, such as %v, not %v", sampler.MinInterval, sampler.MaxInterval, sampler.DefaultInterval, s.interval)}
	}
	if s.command == "serve" && s.procs < 1 {
		return s, misuse{fmt.Errorf("--runtime.gomaxprocs must be 1 or more, not %d", s.procs)}
	}
	if s.command == "serve" && s.connections < 1 {
		return s, misuse{fmt.Errorf("--web.max-connections must be 1 or more, not %d", s.connections)}
	}
	if s.command == "serve" && slices.Contains(*s.web.WebListenAddresses, "") {
		return s, misuse{errors.New(`--web.listen-address must be host:port or :port, such as :10091, not ""`)}
	}
	return s, nil
}
