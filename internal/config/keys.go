package config

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/secret"
)

// Key is a key of the configuration, as docs/configuration.md shows it.
type Key struct {
	Name    string // with what it is below: probe.tls.cert_file
	Form    string // what to write
	Default string // what applies without it; empty: nothing does
	Bounds  string // empty: the form says it all
	About   string

	want string        // for messages: what the value must be; empty: what Form says
	item string        // likewise of an element of a list or map
	ok   func() bool   // whether the value is within Bounds; nil: not checked here
	text func() string // the value, for messages
}

// Keys returns all keys with their defaults, in the order of the reference.
func Keys() []Key { return keys(&Config{Probe: DefaultProbe()}) }

const (
	kib, mib, gib = 1 << 10, 1 << 20, 1 << 30

	aFile     = "file name"
	readAgain = " Read again at every connection; while that fails, the previous content stays in use." +
		" A relative name is resolved against the directory of the configuration."
)

// keys is the one table of keys: it documents them, and refuses values of c that are out of bounds.
func keys(c *Config) []Key {
	return slices.Concat(
		nodeKeys(c), railKeys(), expectKeys(&c.Expect), probeKeys(c.Probe), figureKeys(c.Probe), tlsKeys())
}

// nodeKeys are the keys below nothing.
func nodeKeys(c *Config) []Key {
	return []Key{{Name: "maintenance", Form: aFile, Default: DefaultMaintenance, Bounds: "absolute",
		want: "the absolute path of a file, such as " + DefaultMaintenance,
		ok:   func() bool { return filepath.IsAbs(c.Maintenance) },
		text: func() string { return fmt.Sprintf("%q", c.Maintenance) },
		About: "While this file exists no round starts, peers that ask get `draining`, NVML is released, and " +
			"`railscope_maintenance` is 1: [maintenance](maintenance.md). Checked every 2 s."}}
}

func railKeys() []Key {
	return []Key{
		{Name: "rails.include", Form: "regular expression", Bounds: "RE2, not empty",
			want: "a regular expression for device names, such as ^mlx5_",
			About: "Devices whose ports are rails. It may match any part of the name, so write `^` for the beginning. " +
				"Without it every port that is not a virtual function is a rail."},
		{Name: "rails.names", Form: "name: device/port or PCI address, …",
			Default: "the remembered number, else `0`, `1`, … in natural order of devices and ports",
			Bounds:  "letters, digits, `_` `.` `-`, 32 at most; each port and each name once",
			want:    "names with their ports, such as {rail0: mlx5_0/1}",
			item:    "device/port or PCI address, such as mlx5_0/1 or 0000:18:00.0",
			About: "Names of rails in metrics: `mlx5_0/1`, or `0000:18:00.0` for the first port of that PCI function, " +
				"`0000:18:00.0/2` for the second. Rails are paired by name, so use the same names on both nodes of a " +
				"probe. Ports without a name keep their number. A port that is absent is reported as missing. " +
				"See [rails.md](rails.md)."},
	}
}

func expectKeys(e *Expect) []Key {
	rate := figure("expect.rate", &e.Rate, 125e3, 1.25e12, "",
		"Rate that the port of every rail should have, such as `400Gb/s`. "+
			"[What is expected](probe.md#degraded) of a rail follows from it, also for software devices (rxe, siw).")
	rate.Default = "the rate of the port; none for software devices"
	return []Key{rate}
}

func probeKeys(p *Probe) []Key {
	return []Key{
		{Name: "probe.listen", Form: "host:port", Bounds: "port from 0 to 65535",
			want: "host:port, such as 0.0.0.0:" + DefaultPort, text: func() string {
				return fmt.Sprintf("%q", p.Listen)
			},
			ok: func() bool { return p.Listen == "" || validListen(p.Listen) },
			About: "Address on which peers are answered, such as `0.0.0.0:" + DefaultPort + "`. Without it nobody is " +
				"answered. Needs `token_file`, `tls.client_ca_file` or `insecure: true`."},
		{Name: "probe.name", Form: "text", Default: "the host's name", Bounds: "printable, 253 bytes at most",
			want: "printable text of at most 253 bytes without spaces around it",
			text: func() string { return fmt.Sprintf("%q", p.Name) }, ok: func() bool { return validNodeName(p.Name) },
			About: "Name of this node for its peers. Without it, `--node.name`."},
		{Name: "probe.peers", Form: "list of host, host:port or dns+name:port",
			Bounds: fmt.Sprintf("%d at most, each once; %d names", maxPeers, maxNames),
			want:   fmt.Sprintf("a list, such as [spark-02, spark-03:%s]", DefaultPort),
			item:   fmt.Sprintf("host or host:port, such as spark-02:%s or [fd00::2]:%s", DefaultPort, DefaultPort),
			About: "Peers to ask. The port is " + DefaultPort +
				" unless written; an IPv6 address is in brackets. The " +
				"label `peer` is what is written here, with its port. `" + dnsPrefix +
				"name` stands for all addresses " +
				"of a name, such as that of a headless Service: [peers by DNS](probe.md#peers-from-dns)."},
		{Name: "probe.token_file", Form: aFile, want: "the name of a file",
			Bounds: fmt.Sprintf("1 or 2 lines, %d bytes at most", secret.MaxToken),
			About: "Holds the secret that all peers share, or two of them, one per line. This node asks with both " +
				"and accepts either, so that [no round is lost](security.md#rotation) during a rotation." + readAgain},
		{Name: "probe.tls", Form: "keys below", About: "TLS of the control channel, in both directions."},
		{Name: "probe.insecure", Form: "`true` or `false`", Default: fmt.Sprint(p.Insecure), want: "true or false",
			Bounds: "not with `token_file` or `tls.client_ca_file`",
			About:  "Answer anyone who reaches the port. Without it, a token or an authority is required."},
	}
}

func figureKeys(p *Probe) []Key {
	const ratio = "more than 0 and at most 1"
	return []Key{
		figure("probe.interval", &p.Interval, Duration(time.Second), Duration(24*time.Hour), "",
			"Time between two rounds to a peer."),
		figure("probe.timeout", &p.Timeout, Duration(time.Second), Duration(10*time.Minute), "",
			"Longest time of a round. At most the interval, and lowered to a shorter interval unless written."),
		figure("probe.latency_samples", &p.LatencySamples, 1, 100000, "", "8 B writes per rail and round."),
		figure("probe.transfer", &p.Transfer, 64*kib, 64*gib, "",
			"Striped bytes of a round: half in equal parts, half by work stealing. A full round moves twice as much: "+
				"half of the transfer in addition over single rails, and half by TCP."),
		figure("probe.chunk", &p.Chunk, page, 64*mib, "",
			"Bytes of one write of a burst. A multiple of 4KiB and at most the transfer; lowered to a smaller "+
				"transfer "+
				"unless written."),
		figure("probe.depth", &p.Depth, 1, 128, "", "Chunks in flight per rail."),
		figure("probe.queue_pairs", &p.QueuePairs, 1, 16, "", "Queue pairs per rail."),
		figure("probe.solo_every", &p.SoloEvery, 1, 10000, "",
			"Every so many rounds, starting with the first, one is full: each rail alone, and TCP for comparison."),
		figure("probe.budget", &p.Budget, mib, math.MaxInt64, "1MiB/h or more", fmt.Sprintf(
			"Bytes that this node asks for, and as many that it answers. May be written per `/m`, `/h` or `/d`. At "+
				"least "+
				"%d times the transfer, the most that a round moves. One lease takes at most 1/8 of it, or one "+
				"round of "+
				"default size: peers with a transfer above 64MiB need 17 times that transfer here.", roundTransfers)),
		figure("probe.busy_above", &p.BusyAbove, leastRatio, 1, ratio+", of a rail's capacity",
			"With more traffic of others than this no round starts, and a running one is stopped."),
		figure("probe.min_of_expected", &p.MinOfExpected, leastRatio, 1, ratio,
			"A round is `degraded` when a rail, or all together, has less goodput than this part of "+
				"[what is expected](probe.md#degraded)."),
		figure("probe.traffic_class", &p.TrafficClass, 0, 252, "from 0 to 252, a multiple of 4",
			"Of RDMA packets: DSCP × 4. Use that of your jobs, so that the probe takes the same switch queue."),
		{Name: "probe.memory", Form: "word", Default: p.Memory, Bounds: "`host`",
			want: "host (GPU memory is not supported yet)", text: func() string { return fmt.Sprintf("%q", p.Memory) },
			ok: func() bool { return p.Memory == "host" }, About: "Memory that the bytes are in."},
	}
}

func tlsKeys() []Key {
	file := func(name, about string) Key {
		return Key{Name: "probe.tls." + name, Form: aFile, want: "the name of a file", About: about + readAgain}
	}
	return []Key{
		file("cert_file", "Certificate of this node in PEM, with the intermediate ones. Enables TLS 1.3."),
		file("key_file", "Its key."),
		file("client_ca_file",
			"Authorities that sign the certificates of all peers, in both directions: mutual TLS. A "+
				"peer without such a certificate is not answered. Without it, peers that are asked are verified "+
				"against "+
				"the system's authorities."),
		{Name: "probe.tls.client_allowed_names", Form: "list of DNS names or URIs", Default: "any",
			Bounds: fmt.Sprintf("1 to %d; needs `client_ca_file`", maxAllowedNames),
			want:   fmt.Sprintf(`a list of 1 to %d names, such as ["*.gpu.example.com"]`, maxAllowedNames),
			item: "a DNS name, such as spark-02.example.com or *.gpu.example.com, or a URI, such as " +
				"spiffe://example.com/railscope",
			About: "Peers that are answered, of those with a certificate of the authority: one DNS name or URI of the " +
				"subjectAltName must be in the list. A leading `*.` stands for one label. The common name is ignored."},
	}
}

// leastRatio excludes 0 from the ratios.
const leastRatio = Ratio(math.SmallestNonzeroFloat64)

// figure makes the row of a number, whose default is its value now. Empty bounds are those of least and most.
func figure[T figureType](name string, v *T, least, most T, bounds, about string) Key {
	form, want := (*v).describe()
	k := Key{Name: name, Form: form, Default: (*v).String(), About: about}
	k.Bounds = cmp.Or(bounds, fmt.Sprintf("from %v to %v", least, most))
	k.want = want + k.Bounds
	k.ok = func() bool { return *v >= least && *v <= most }
	k.text = func() string { return (*v).String() }
	return k
}

// itemOf is before the path of a list, for its items.
const itemOf = "an item of "

// wanted returns what the value at a path must be; of an element, what each must be.
func wanted(table []Key, path string) string {
	for _, k := range table {
		if k.Name == path {
			return cmp.Or(k.want, "keys with values")
		}
		if k.item != "" && (path == itemOf+k.Name || strings.HasPrefix(path, k.Name+".")) {
			return k.item
		}
	}
	return "keys with values"
}
