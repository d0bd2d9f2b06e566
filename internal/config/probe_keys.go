package config

import (
	"fmt"
	"time"

	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/probe"
)

const (
	aFile     = "file name"
	readAgain = "Read again at every connection; while that fails, what it held before stays in use. A relative name is looked for beside the configuration."
)

// keys are the keys below probe, which read into the reader's options.
func (r probeReader) keys() []key {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	o := r.opts
	return []key{
		written("listen", "host:port", "", "port from 0 to 65535",
			"Where to answer peers, such as `0.0.0.0:"+probe.DefaultPort+"`. Without it nobody is answered. Needs `token_file` or `tls.client_ca_file`, or `insecure: true`.", r.listen),
		written("name", "text", "the host's name", "printable, 253 bytes at most", "What this node calls itself to its peers. `--node.name` says it where this does not.", r.name),
		written("peers", "list of host, host:port or dns+name:port", "", fmt.Sprintf("%d at most, each once; %d names", maxPeers, maxNames),
			"Whom to ask. The port is "+probe.DefaultPort+" unless written; an address of IPv6 is in brackets. What is written here, with its port, is the label `peer`. `"+dnsPrefix+"name` is all addresses of a name, such as that of a headless Service: [peers by DNS](probe.md#peers-by-dns).", r.peers),
		written("token_file", aFile, "", fmt.Sprintf("1 or 2 lines, %d bytes at most", secret.MaxToken), "Holds the secret that all peers share, or two of them, one per line: peers are asked with both and answered with either, so that [no round is lost](security.md#rotation) while it is replaced. "+readAgain, r.file("token_file", &o.Security.TokenFile, checkToken)),
		written("tls", "keys below", "", "", "TLS of the control channel, in both directions.", r.tls),
		written("insecure", "`true` or `false`", fmt.Sprint(o.Security.Insecure), "not with `token_file` or `tls.client_ca_file`",
			"Answer anyone who reaches the port. Without it, and without a token or an authority, the configuration is refused.", r.insecure),
		of(r, "interval", durations, &o.Interval, from(durations, time.Second, 24*time.Hour), "A round to every peer this often."),
		of(r, "timeout", durations, &o.Timeout, from(durations, time.Second, probe.MaxTimeout), "How long a round may take. Not more than the interval; unless written, it is as long as that where that is shorter."),
		of(r, "latency_samples", numbers, &o.LatencySamples, from(numbers, 1, 100000), "8 B writes per rail and round."),
		of(r, "transfer", sizes, &o.Transfer, from(sizes, 64*kib, 64*gib), "Striped bytes of a round: half in equal parts, half by work stealing. A full round moves twice as much: half as much again over single rails, and half by TCP."),
		of(r, "chunk", sizes, &o.Chunk, from(sizes, page, 64*mib), "Bytes of one write of a burst. A multiple of 4KiB, not more than the transfer; unless written, it is as much as that where that is less."),
		of(r, "depth", numbers, &o.Depth, from(numbers, 1, 128), "Chunks in flight per rail."),
		of(r, "queue_pairs", numbers, &o.QueuePairs, from(numbers, 1, 16), "Queue pairs per rail."),
		of(r, "solo_every", numbers, &o.SoloEvery, from(numbers, 1, 10000), "Every so many rounds, and the first time, a full one: each rail alone, and TCP for comparison."),
		of(r, "budget", budgets, &o.Budget, bounds[int64]{"1MiB/h or more", func(v int64) bool { return v >= mib }},
			fmt.Sprintf("Bytes that this node asks for, and as many that it answers. May be written per `/m`, `/h` or `/d`. At least %d times the transfer, which is what one round may move. One lease takes at most an eighth of it, or one round of default size: peers with a transfer of more than 64MiB need 17 times that transfer here.", roundTransfers)),
		of(r, "busy_above", ratios, &o.BusyAbove, bounds[float64]{"more than 0 and at most 1, a part of a rail's capacity", func(v float64) bool { return v > 0 && v <= 1 }},
			"With more traffic of others than this there is no round, and one that is running gives way."),
		of(r, "min_of_expected", ratios, &o.MinOfExpected, bounds[float64]{"more than 0 and at most 1", func(v float64) bool { return v > 0 && v <= 1 }},
			"With less goodput than this part of what is expected, of a rail or of all together, a round is `degraded`: [what is expected](probe.md#degraded)."),
		written("traffic_class", "number", fmt.Sprint(o.TrafficClass), "from 0 to 252, a multiple of 4",
			"Of RDMA packets: DSCP × 4. Write that of your jobs, so that the probe goes by the same queue of the switches.", r.trafficClass),
		written("memory", "word", o.Memory, "`host`", "Where the bytes lie. There is no other yet.", r.memory),
	}
}
