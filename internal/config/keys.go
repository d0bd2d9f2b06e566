package config

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/probe/options"
)

// Key is a key of the configuration, as docs/configuration.md shows it.
type Key struct {
	Name    string // with its parents: probe.tls.cert_file
	Form    string // form of the value
	Default string // value without the key; empty: none
	Bounds  string // valid range; empty: the form says it
	About   string

	want    string        // for messages: form of a valid value; empty: keys with values
	item    string        // for messages: form of a valid element of a list or map
	into    any           // pointer to the field that the key sets; nil: the key has keys below it
	invalid func() string // returns the value if it is out of range, otherwise ""; nil: not checked here
}

const (
	fileForm = "file name"
	reread   = " Read again at every connection; while that fails, the previous content stays in use. " +
		"Relative to the directory of the configuration."
)

// Keys returns all keys with their defaults, in the order of the reference.
func Keys() []Key { return keys(&Config{Probe: new(options.DefaultOptions())}, new([]string)) }

// keys returns the table of keys. It documents them, says which fields of c they set, and finds values of c that are
// out of range. The words of probe.extras are set to extras.
func keys(c *Config, extras *[]string) []Key {
	const port = options.DefaultPort
	p := c.Probe
	file := func(name string, v *string, about string) Key {
		return Key{Name: "probe." + name, Form: fileForm, want: "the name of a file", into: v, About: about + reread}
	}
	list := []Key{
		{Name: "maintenance", Form: fileForm, Default: DefaultMaintenance, Bounds: "absolute",
			want: "the absolute path of a file, such as " + DefaultMaintenance,
			into: &c.Maintenance, invalid: text(&c.Maintenance, filepath.IsAbs),
			About: "While this file exists no round starts, peers that ask get `draining`, NVML is released, and " +
				"`railscope_maintenance` is 1: [maintenance](maintenance.md). Checked every 2 s."},
		{Name: "rails.include", Form: "regular expression", Bounds: "RE2, not empty",
			want: "a regular expression for device names, such as ^mlx5_", into: &c.Rails.Include,
			About: "Devices whose ports are rails, or single ports as `device/port` if the pattern has a slash: " +
				"`^mlx5_0/1$`. It may match any part of the name, so write `^` for the beginning. Without it every " +
				"port [without a reason against it](rails.md#ports-that-are-not-rails) is a rail. A pattern that " +
				"matches nothing is logged, and a finding (`pattern_unmatched`)."},
		{Name: "rails.exclude", Form: "regular expression", Bounds: "RE2, not empty",
			want: "a regular expression for device names, such as ^mlx5_bond", into: &c.Rails.Exclude,
			About: "Devices, or ports as `device/port`, that are not rails, also of those that `include` matches. " +
				"Devices that it leaves out whole are reported in `railscope_rail_excluded_info`."},
		{Name: "rails.names", Form: "name: device, device/port or PCI address, …",
			Default: "the remembered number, else `0`, `1`, … in natural order of devices and ports",
			Bounds:  "letters, digits, `_` `.` `-`, 32 at most; each port and each name once",
			want:    "names with their ports, such as {rail0: mlx5_0/1}", into: &c.Rails.Names,
			item: "a device, device/port or PCI address, such as mlx5_0, mlx5_0/1 or 0000:18:00.0",
			About: "Names of rails in metrics: `mlx5_0/1` (`mlx5_0` is its first port), or `0000:18:00.0` for the " +
				"first port of that PCI function, `0000:18:00.0/2` for the second. Rails are paired by name, so use " +
				"the same names on both nodes of a probe. Ports without a name keep their number. A port that is " +
				"absent is reported as missing. See [rails.md](rails.md)."},
		{Name: "rails.roles", Form: "role: regular expression, …", Default: "[by the distance to GPUs](rails.md#roles)",
			Bounds: fmt.Sprintf("letters, digits, `_` `.` `-`, 32 at most; %d roles", maxRoles),
			want:   "roles with regular expressions for device names, such as {storage: ^mlx5_bond}",
			into:   &c.Rails.Roles, item: "a regular expression for device names, such as ^mlx5_bond",
			About: "Roles of rails by device, or by `device/port` if the pattern has a slash; the first that matches " +
				"counts. Balance is judged within a role: " +
				"an unused storage port is no imbalance. See [rails.md](rails.md#roles)."},
		{Name: "rails.leaf", Form: "rail: name, …", Bounds: "letters, digits, `_` `.` `-` `/` `:`, 63 at most",
			want: "rails with the names of their switches, such as {0: leaf-a, 1: leaf-b}",
			item: "the name of a switch, such as leaf-a", into: &c.Rails.Leaf,
			About: "Leaf switches that the rails of this node are plugged into: `railscope_rail_leaf_info`, by which " +
				"[`railscope fleet`](fleet.md) finds a bad one."},
		{Name: "rails.virtual_functions", Form: "word", Default: "ignore", Bounds: "`ignore` or `" + ReportVirtual +
			"`", want: "ignore or " + ReportVirtual, into: &c.Rails.VirtualFunctions,
			invalid: text(&c.Rails.VirtualFunctions, func(s string) bool {
				return s == "" || s == "ignore" || s == ReportVirtual
			}),
			About: "`" + ReportVirtual + "` exports the counters of virtual functions with the labels `pf` and `vf`. " +
				"They are no rails: nothing is probed or judged. `include` and `exclude` apply to them too. See " +
				"[rails.md](rails.md#virtual-functions)."},
	}
	list = append(append(list, expectations(&c.Expect)...), silenceKey(&c.Findings.Silence))
	list = append(list, []Key{
		{Name: "probe.listen", Form: "host:port", Bounds: "port from 0 to 65535",
			want: "host:port, such as 0.0.0.0:" + port, into: &p.Listen, invalid: text(&p.Listen, validListen),
			About: "Address to answer peers on, such as `0.0.0.0:" + port + "`. Without it, peers are not " +
				"answered. Needs `token_file`, `tls.client_ca_file` or `insecure: true`."},
		{Name: "probe.name", Form: "text", Default: "the host's name", Bounds: "printable, 253 bytes at most",
			want: "printable text of at most 253 bytes without spaces around it",
			into: &p.Name, invalid: text(&p.Name, validNodeName),
			About: "Name of this node for its peers. Without it, `--node.name`."},
		{Name: "probe.peers", Form: "list of host, host:port, dns+name:port or file:pattern",
			Bounds: fmt.Sprintf("%d at most, each once; %d names and patterns", maxPeers, maxNames),
			want:   fmt.Sprintf("a list, such as [spark-02, spark-03:%s]", port), into: &p.Peers,
			item: fmt.Sprintf("host or host:port, such as spark-02:%s or [fd00::2]:%s", port, port),
			About: "Peers to ask. The default port is " + port + "; an IPv6 address is in brackets. The label " +
				"`peer` is the peer as written here, with its port. `" + dnsPrefix + "name` stands for all addresses " +
				"of a name, such as that of a headless Service, `" + filePrefix + "pattern` for the targets of " +
				"files: of these nodes [`fanout` are asked](probe.md#fan-out)."},
		{Name: "probe.token_file", Form: fileForm, want: "the name of a file", into: &p.Security.TokenFile,
			Bounds: fmt.Sprintf("1 or 2 lines, %d bytes at most", secret.MaxToken),
			About: "Holds the secret that all peers share, or two of them, one per line. This node asks with both " +
				"and accepts either, so that [no round is lost](security.md#rotation) during a rotation." + reread},
		{Name: "probe.tls", Form: "keys below", About: "TLS of the control channel, in both directions."},
		{Name: "probe.insecure", Form: "`true` or `false`", Default: strconv.FormatBool(p.Security.Insecure),
			want: "true or false", into: &p.Security.Insecure, Bounds: "not with `token_file` or `tls.client_ca_file`",
			About: "Answer anyone who reaches the port. Without it, a token or an authority is required."},
	}...)
	list = append(list, allowed(&p.Allowed)...)
	list = append(list, figures(p)...)
	words, s := extraWords(), &p.Security
	return append(list,
		Key{Name: "probe.extras", Form: "list of words", Default: "none", Bounds: "`" + strings.Join(words, "`, `") +
			"`, each once", want: "a list of " + strings.Join(words, ", ") + ", each once", into: extras,
			item: "one of " + strings.Join(words, ", "),
			About: "Additional [measurements](probe.md#extras) of full rounds, one per round, in turn. They count " +
				"against the budget. `gpu` allocates GPU memory while it measures, and allows peers to do so here."},
		file("tls.cert_file", &s.CertFile, "Certificate of this node in PEM, with the intermediate ones. Without it, "+
			"TLS uses a certificate that the process makes, and only the token authenticates."),
		file("tls.key_file", &s.KeyFile, "Key of the certificate."),
		file("tls.client_ca_file", &s.ClientCAFile, "Authorities that sign the certificates of all peers, in both "+
			"directions: mutual TLS. A peer without such a certificate is not answered. Without it, peers that are "+
			"asked are verified against the system's authorities."),
		Key{Name: "probe.tls.client_allowed_names", Form: "list of DNS names or URIs", Default: "any",
			Bounds: fmt.Sprintf("1 to %d; needs `client_ca_file`", maxAllowedNames),
			want:   fmt.Sprintf(`a list of 1 to %d names, such as ["*.gpu.example.com"]`, maxAllowedNames),
			into:   &s.ClientAllowedNames,
			item: "a DNS name, such as spark-02.example.com or *.gpu.example.com, or a URI, such as " +
				"spiffe://example.com/railscope",
			About: "Peers that are answered, of those with a certificate of the authority: one DNS name or URI of " +
				"the subjectAltName must be in the list. A leading `*.` stands for one label. The common name is " +
				"ignored."})
}

// expectations returns the keys below expect.
func expectations(e *Expect) []Key {
	rails := figure("expect.rails", &e.Rails, 1, 128, "", "Rails that this node should have. With fewer, the rest is "+
		"reported as [missing](expect.md).")
	rails.Default = "those that are present or remembered"
	rate := figure("expect.rate", &e.Rate, 125e3, 1.25e12, "", "Rate that the port of every rail should have, such as "+
		"`400Gb/s`. It determines [what is expected](expect.md) of a rail, also of software devices (rxe, siw).")
	rate.Default = "the best rate seen of the port; none for software devices"
	mtu := figure("expect.mtu", &e.MTU, 256, 4096, "256, 512, 1024, 2048 or 4096", "RoCE MTU that every rail should "+
		"have, in bytes. The MTU of the interface must be 4200 or more for 4096.")
	mtu.Default = "the largest MTU seen of the port"
	mtu.invalid = func() string {
		if slices.Contains([]Count{256, 512, 1024, 2048, 4096}, e.MTU) {
			return ""
		}
		return e.MTU.String()
	}
	gpus := figure("expect.gpus", &e.GPUs, 1, 128, "", "GPUs that this node should have on PCI.")
	gpus.Default = "the most that were seen"
	return []Key{rails, rate, mtu, gpus}
}

// allowed returns the keys of what the probe may do beside rounds.
func allowed(a *options.Allowed) []Key {
	return []Key{
		{Name: "probe.allow_ring", Form: "`true` or `false`", Default: strconv.FormatBool(a.AllowRing),
			want: "true or false", into: &a.AllowRing,
			About: "Take part in [rings](benchmarks.md#gradient-synchronisation) that others ask for, towards this " +
				"node's own peers, within the budget."},
		{Name: "probe.allow_gate", Form: "`true` or `false`", Default: strconv.FormatBool(a.AllowGate),
			want: "true or false", into: &a.AllowGate,
			About: "Try the rails with this node's own peers when a [gate](gate.md) asks, within a budget of its own " +
				"of the size of `budget`."},
		{Name: "probe.events", Form: "`true` or `false`", Default: strconv.FormatBool(a.Events),
			want: "true or false", into: &a.Events,
			About: "Keep the RDMA devices open, without queue pairs or memory, to receive their " +
				"[asynchronous events](events.md). An open device keeps its driver from being unloaded; it is closed " +
				"during maintenance, and for a minute after `SIGHUP`."},
	}
}

// figures returns the keys below probe that a command line can set, too.
func figures(p *options.Options) []Key {
	const ratio = "more than 0 and at most 1"
	const minRatio = Ratio(math.SmallestNonzeroFloat64) // smallest value above 0
	return []Key{
		figure("probe.fanout", (*Count)(&p.Fanout), 1, 100, "", "Nodes to ask of those that `"+dnsPrefix+"` and `"+
			filePrefix+"` peers list, [others each day](probe.md#fan-out). Use the same number on all nodes. Peers "+
			"with an address are all asked."),
		figure("probe.interval", (*Duration)(&p.Interval), Duration(time.Second), Duration(24*time.Hour), "",
			"Time between two rounds to a peer. It becomes a multiple when the budget needs that, or when rounds and "+
				"answers would take more than 70 % of the time."),
		figure("probe.timeout", (*Duration)(&p.Timeout), Duration(time.Second), Duration(options.MaxTimeout), "",
			"Longest time of a round. At most the interval; the default is lowered to a shorter interval."),
		figure("probe.latency_samples", (*Count)(&p.LatencySamples), 1, 100000, "", "8 B writes per rail and round."),
		figure("probe.burst", (*Duration)(&p.Burst), Duration(time.Millisecond), Duration(time.Second), "",
			"Time for which a burst measures, with all rails at full depth. On a slow link it lasts until 64 writes "+
				"completed, at most 3s. The write size is what a rail carries in 1/64 of it, from 4KiB to 1MiB."),
		figure("probe.depth", (*Count)(&p.Depth), 2, 128, "", "Writes in flight per rail."),
		figure("probe.queue_pairs", (*AutoInt)(&p.QueuePairs), 1, rail.MaxQueuePairs, "",
			"Queue pairs per rail. `auto`: 1, on a bond 2 per member, because a bond hashes each queue pair to one "+
				"member."),
		figure("probe.solo_every", (*Count)(&p.SoloEvery), 1, 10000, "",
			"One round in this many, starting with the first, is full: each rail alone, and TCP for comparison."),
		budgetKey((*budget)(&p.Budget)),
		figure("probe.busy_above", (*Ratio)(&p.BusyAbove), minRatio, 1, ratio+", of a rail's capacity",
			"A rail with more traffic of others than this is busy: `when_busy` says what a round does about it. A "+
				"running burst is stopped."),
		{Name: "probe.when_busy", Form: "word", Default: p.WhenBusy, Bounds: "`gap`, `skip` or `burst`",
			want: "gap, skip or burst", into: &p.WhenBusy, invalid: text(&p.WhenBusy, func(s string) bool {
				return slices.Contains([]string{options.WhenBusyGap, options.WhenBusySkip, options.WhenBusyBurst}, s)
			}),
			About: "What a round does about [rails that others use](probe.md#busy). Whether RDMA works over them, " +
				"and with what latency, is always measured. `gap` waits until the rails of both ends are quiet, and " +
				"makes a short burst in the gap. `skip` makes none. `burst` makes the short burst at once, which " +
				"delays the job " +
				"by what it takes, and says nothing of the capacity of the rail."},
		figure("probe.gap_wait", (*Duration)(&p.GapWait), 0, Duration(10*time.Minute), "up to a third of the interval",
			"How long a round waits for a gap, with `when_busy: gap`. 0s: a third of the interval."),
		figure("probe.gap_burst", (*Duration)(&p.GapBurst), Duration(100*time.Microsecond),
			Duration(100*time.Millisecond),
			"", "Measured time of the short burst over rails that others use. On a slow rail it lasts up to five "+
				"times as long."),
		figure("probe.min_of_expected", (*Ratio)(&p.MinOfExpected), minRatio, 1, ratio,
			"A round is `degraded` when the goodput of a rail, or of all together, is below this part of "+
				"[what is expected](probe.md#degraded)."),
		figure("probe.traffic_class", (*AutoInt)(&p.TrafficClass), 0, 255, "",
			"Of RDMA packets: DSCP × 4 + ECN. `auto` is [that of the jobs](probe.md#traffic-class), so that the "+
				"probe uses the same queue of switches."),
		figure("probe.service_level", (*AutoInt)(&p.ServiceLevel), 0, 15, "",
			"Of RDMA packets on InfiniBand, and the priority in a VLAN. `auto` is that of the jobs."),
		figure("probe.pkey", (*PKey)(&p.PKey), 1, math.MaxUint16, "from 0x0001 to 0xffff, without 0x8000", "Partition "+
			"of the probe on InfiniBand, such as `0x8001`. Without bit 15, limited membership is enough. Without the "+
			"key, the first partition of each port."),
		{Name: "probe.memory", Form: "word", Default: p.Memory, Bounds: "`host`", About: "Memory of the transferred " +
			"bytes.", want: "host (GPU memory is not supported yet)",
			into: &p.Memory, invalid: text(&p.Memory, func(s string) bool { return s == "host" })},
	}
}

// budgetKey returns the row of a budget, which has two forms.
func budgetKey(v *budget) Key {
	bounds := fmt.Sprintf("from %v to %v, or %v/h or more", budget{Share: minShare}, budget{Share: maxShare},
		Size(minBudget))
	return Key{Name: "probe.budget", Form: "percentage or size/h", Default: v.String(), Bounds: bounds,
		want: "a share of time such as 0.5%, or a size per hour such as 8GiB/h, " + bounds,
		About: "[Share of each rail's time](probe.md#budget) for rounds that this node starts. Rounds that it " +
			"answers have the same share again: they use the other direction. A size per hour is converted by the " +
			"rate of all rails, and may be written per `/m`, `/h` or `/d`.",
		into: v, invalid: func() string {
			if v.valid() {
				return ""
			}
			return v.String()
		}}
}

// figure returns the row of a number. Its default is its current value; empty bounds means least to most.
func figure[T figureType](name string, v *T, least, most T, bounds, about string) Key {
	form, want := (*v).describe()
	bounds = cmp.Or(bounds, fmt.Sprintf("from %v to %v", least, most))
	return Key{Name: name, Form: form, Default: (*v).String(), About: about, Bounds: bounds, want: want + bounds,
		into: v, invalid: func() string {
			value := (*v).String()
			if *v >= least && *v <= most || value == "auto" || value == "" {
				return ""
			}
			return value
		}}
}

func text(v *string, valid func(string) bool) (invalid func() string) {
	return func() string {
		if valid(*v) {
			return ""
		}
		return strconv.Quote(*v)
	}
}

// itemOf is the prefix of the path of a list, for the list's items.
const itemOf = "an item of "

func wanted(table []Key, path string) string {
	want := ""
	for _, k := range table {
		switch {
		case k.Name == path:
			want = k.want
		case k.item != "" && (path == itemOf+k.Name || strings.HasPrefix(path, k.Name+".") ||
			strings.HasPrefix(path, itemOf+k.Name+".")):
			want = k.item
		}
	}
	return cmp.Or(want, "keys with values")
}
