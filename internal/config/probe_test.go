package config_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/probe/options"
)

const wantAllowed = "an item of probe.tls.client_allowed_names must be a DNS name, such as spark-02.example.com or " +
	"*.gpu.example.com, or a URI, such as spiffe://example.com/railscope, not "

// secrets returns a directory with the files that configurations name, and the path of a configuration there.
func secrets(t testing.TB) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string]string{
		"token": " open sesame\n", "crt": "C", "key": "K", "ca": "A",
		"empty": "", "blank": " \n\t\n", "lines": "a\nb\nc\n", "two": "new\nold\n", "long": strings.Repeat("x", 4097),
		"longest": strings.Repeat("x", 4096) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, filepath.Join(dir, "f.yml")
}

func TestProbe(t *testing.T) {
	dir, file := secrets(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		name, in string
		want     func(o *options.Options)
	}{
		{"all of it", `
listen: 0.0.0.0:10092
name: spark-01, left
peers: [spark-02, spark-03:7000]
token_file: ` + in("token") + `
tls: {cert_file: crt, key_file: key, client_ca_file: ca, client_allowed_names: [spark-02, "*.gpu.example.com", "spiffe://example.com/railscope"]}
insecure: false
fanout: 8
interval: 1m30s
timeout: 1m
latency_samples: 100
burst: 20ms
depth: 16
queue_pairs: 2
solo_every: 10
budget: 1.5%
busy_above: 1
when_busy: burst
gap_wait: 20s
gap_burst: 2ms
min_of_expected: 0.85
traffic_class: 106
service_level: 3
pkey: 0x8001
memory: host`, func(o *options.Options) {
			*o = options.Options{Listen: "0.0.0.0:10092", Name: "spark-01, left",
				Peers: []string{"spark-02:10092", "spark-03:7000"},
				Security: options.Security{TokenFile: in("token"), CertFile: in("crt"), KeyFile: in("key"),
					ClientCAFile:       in("ca"),
					ClientAllowedNames: []string{"spark-02", "*.gpu.example.com", "spiffe://example.com/railscope"}},
				Fanout: 8, Interval: 90 * time.Second, Timeout: time.Minute,
				LatencySamples: 100, Burst: 20 * time.Millisecond, Depth: 16, QueuePairs: 2, SoloEvery: 10,
				Budget: options.Budget{Share: 0.015}, WhenOthers: options.WhenOthers{BusyAbove: 1,
					WhenBusy: options.WhenBusyBurst, GapWait: 20 * time.Second, GapBurst: 2 * time.Millisecond}, MinOfExpected: 0.85, TrafficClass: 106,
				ServiceLevel: 3, PKey: 0x8001,
				Memory: "host", Allowed: options.Allowed{Events: true}}
		}},
		{"only asking", "peers: [a]", func(o *options.Options) { o.Peers = []string{"a:10092"} }},
		{"only answering, with a token", "listen: :10092\ntoken_file: token", func(o *options.Options) {
			o.Listen, o.Security.TokenFile = ":10092", in("token")
		}},
		{"answering with certificates",
			"listen: '[::]:10092'\ntls: {cert_file: crt, key_file: key, client_ca_file: ca}", func(o *options.Options) {
				o.Listen, o.Security = "[::]:10092", options.Security{CertFile: in("crt"), KeyFile: in("key"),
					ClientCAFile: in("ca")}
			}},
		{"answering anyone", "listen: 127.0.0.1:0\ninsecure: true", func(o *options.Options) {
			o.Listen, o.Security.Insecure = "127.0.0.1:0", true
		}},
		{"two tokens", "peers: [a]\ntoken_file: two", func(o *options.Options) {
			o.Peers, o.Security.TokenFile = []string{"a:10092"}, in("two")
		}},
		{"the longest token", "peers: [a]\ntoken_file: longest", func(o *options.Options) {
			o.Peers, o.Security.TokenFile = []string{"a:10092"}, in("longest")
		}},
		{"peers of all forms",
			"peers: [10.0.0.1, '10.0.0.2:1', '[fd00:0::1]', '[fd00::2]:65535', A.example.com., '[fe80::1%eth0]']",
			func(o *options.Options) {
				o.Peers = []string{"10.0.0.1:10092", "10.0.0.2:1", "[fd00::1]:10092", "[fd00::2]:65535",
					"A.example.com.:10092", "[fe80::1%eth0]:10092"}
			}},
		{"names that stand for many", "peers: [dns+peers.ns.svc, 'dns+Peers.ns.svc.cluster.local.:7000', spark-02]",
			func(o *options.Options) {
				o.DNS, o.Peers = []string{"peers.ns.svc:10092", "Peers.ns.svc.cluster.local.:7000"},
					[]string{"spark-02:10092"}
			}},
		{"only peers by DNS", "peers: [dns+peers]", func(o *options.Options) { o.DNS = []string{"peers:10092"} }},
		{"files", "peers: ['file:/etc/railscope/peers/*.yml', file:more.JSON, spark-02]", func(o *options.Options) {
			o.Files, o.Peers = []string{"/etc/railscope/peers/*.yml", in("more.JSON")}, []string{"spark-02:10092"}
		}},
		{"alias", "name: &n spark\npeers: [*n]", func(o *options.Options) {
			o.Name, o.Peers = "spark", []string{"spark:10092"}
		}},
		{"no peers", "listen: :1\ninsecure: TRUE\npeers:", func(o *options.Options) {
			o.Listen, o.Security.Insecure = ":1", true
		}},
		{"powers of ten, a budget by the day", "peers: [a]\nbudget: 240MB/d", func(o *options.Options) {
			o.Peers, o.Budget = []string{"a:10092"}, options.Budget{Bytes: 1e7}
		}},
		{"a budget by the minute", "peers: [a]\nbudget: 1GiB/m", func(o *options.Options) {
			o.Peers, o.Budget = []string{"a:10092"}, options.Budget{Bytes: 60 << 30}
		}},
		{"the least", "peers: [a]\ninterval: 1s\ntimeout: 1s\nlatency_samples: 1\nburst: 1ms\n" +
			"depth: 2\nqueue_pairs: 1\nsolo_every: 1\nbudget: 1MiB/h\nbusy_above: 0.001\ntraffic_class: 0\nservice_level: 0\n" +
			"pkey: 1",
			func(o *options.Options) {
				o.Peers, o.Interval, o.Timeout, o.LatencySamples, o.Burst = []string{"a:10092"},
					time.Second, time.Second, 1, time.Millisecond
				o.Depth, o.QueuePairs, o.SoloEvery, o.Budget, o.BusyAbove = 2, 1, 1,
					options.Budget{Bytes: 1 << 20}, 0.001
				o.TrafficClass, o.ServiceLevel, o.PKey = 0, 0, 1
			}},
		{"the most", "peers: [a]\ninterval: 24h\ntimeout: 10m\nlatency_samples: 100000\nburst: 1s\n" +
			"depth: 128\nqueue_pairs: 16\nsolo_every: 10000\nbudget: 25%\ntraffic_class: 255\n" +
			"service_level: 15\npkey: 65535",
			func(o *options.Options) {
				o.Peers, o.Interval, o.Timeout, o.LatencySamples, o.Burst = []string{"a:10092"},
					24*time.Hour, 10*time.Minute, 100000, time.Second
				o.Depth, o.QueuePairs, o.SoloEvery, o.Budget, o.TrafficClass = 128, 16, 10000,
					options.Budget{Share: 0.25}, 255
				o.ServiceLevel, o.PKey = 15, 0xffff
			}},
		{"auto", "peers: [a]\nqueue_pairs: auto\ntraffic_class: auto\nservice_level: auto", func(o *options.Options) {
			o.Peers = []string{"a:10092"}
		}},
		{"extras", "peers: [a]\nextras: [gpu, paths]", func(o *options.Options) {
			all := options.ScheduledExtras()
			o.Peers, o.Extras = []string{"a:10092"}, append(all[3:4:4], all[1])
		}},
		{"a ring and a gate, no events", "peers: [a]\nallow_ring: true\nallow_gate: true\nevents: false", func(o *options.Options) {
			o.Peers, o.Allowed = []string{"a:10092"}, options.Allowed{AllowRing: true, AllowGate: true}
		}},
		{"defaults follow what is written", "peers: [a]\ninterval: 10s", func(o *options.Options) {
			o.Peers, o.Interval, o.Timeout = []string{"a:10092"}, 10*time.Second, 10*time.Second
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := config.Parse(file, []byte(below(tt.in)))
			if err != nil {
				t.Fatal(err)
			}
			want := options.DefaultOptions()
			tt.want(&want)
			if diff := cmp.Diff(&want, got.Probe); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// below returns a configuration with these lines under probe, from line 2 on.
func below(s string) string {
	return "probe:\n  " + strings.ReplaceAll(strings.Trim(s, "\n"), "\n", "\n  ") + "\n"
}

// wantBudget is the error's description of a valid budget.
const wantBudget = "2: probe.budget must be a share of time such as 0.5%, or a size per hour such as 8GiB/h, " +
	"from 0.001% to 25%, or 1MiB/h or more, not "

func TestProbeRefuses(t *testing.T) {
	dir, file := secrets(t)
	const wantName2 = `a peer with dns+ must be a name that has an address for each peer, such as ` +
		`dns+railscope-peers.railscope.svc:10092, not `
	const wantFile = `a peer with file: must be JSON or YAML files, with * only in the last element, such as ` +
		`file:/etc/railscope/peers/*.yml, not `
	const wantPeer = `an item of probe.peers must be host or host:port, such as spark-02:10092 or [fd00::2]:10092, not `
	const wantName = `probe.name must be printable text of at most 253 bytes without spaces around it, not `
	for _, tt := range []struct{ name, in, want string }{ // want follows the file's name
		// Keys and types.
		{"a key misspelt", "peers: [a]\nbrst: 5ms", `3: unknown key "brst" in probe; did you mean "burst"?`},
		{"a key of before", "peers: [a]\ntransfer: 1MiB", "3: probe.transfer no longer exists: a burst is measured over " +
			"time, not over bytes; set burst, 5ms by default"},
		{"another one", "peers: [a]\nchunk: 1MiB", "3: probe.chunk no longer exists: a burst is measured over time, not " +
			"over bytes; the size of a write follows from the rail's rate and burst"},
		{"a key misspelt, in tls", "tls: {certfile: x}",
			`2: unknown key "certfile" in probe.tls; did you mean "cert_file"?`},
		{"a word of when_busy", "peers: [a]\nwhen_busy: never",
			`3: probe.when_busy must be gap, skip or burst, not "never"`},
		{"a longer wait than a third", "peers: [a]\ninterval: 30s\ngap_wait: 11s", "4: probe.gap_wait 11s is more than " +
			"a third of the interval of 30s: raise the interval or lower it"},
		{"a long burst in a gap", "peers: [a]\ngap_burst: 101ms", "3: probe.gap_burst must be a duration such as 90s or " +
			"1m30s, from 100µs to 100ms, not 101ms"},
		{"an unknown key", "zzz: 1",
			`2: unknown key "zzz" in probe; known keys: allow_gate, allow_ring, budget, burst, busy_above, depth, events, extras, fanout, gap_burst, gap_wait, insecure, interval, ` +
				`latency_samples, listen, memory, min_of_expected, name, peers, pkey, queue_pairs, service_level, ` +
				`solo_every, timeout, tls, token_file, traffic_class, when_busy`},
		{"a key twice", "depth: 1\ndepth: 1", `3: duplicate key "depth" in probe; the first is in line 2`},
		{"a list", "[a]", `2: probe must be keys with values, not a list`},
		{"tls is a word", "tls: yes", `2: probe.tls must be keys with values, not "yes"`},
		// Durations.
		{"interval without a unit", "peers: [a]\ninterval: 60",
			`3: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not "60"`},
		{"interval is nothing", "interval:",
			`2: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not ""`},
		{"interval is a list", "interval: [1s]",
			`2: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not a list`},
		{"interval too short", "interval: 999ms",
			`2: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not 999ms`},
		{"interval too long", "interval: 24h1s",
			`2: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not 24h0m1s`},
		{"interval negative", "interval: -60s",
			`2: probe.interval must be a duration such as 90s or 1m30s, from 1s to 24h, not -1m`},
		{"timeout too long", "interval: 1h\ntimeout: 11m",
			`3: probe.timeout must be a duration such as 90s or 1m30s, from 1s to 10m, not 11m`},
		{"timeout too short", "timeout: 1ms",
			`2: probe.timeout must be a duration such as 90s or 1m30s, from 1s to 10m, not 1ms`},
		{"timeout over the interval", "timeout: 2m\ninterval: 90s",
			`2: probe.timeout 2m is more than the interval, 1m30s: a round must end before the next begins`},
		// Numbers.
		{"samples is a word", "latency_samples: many",
			`2: probe.latency_samples must be a whole number, from 1 to 100000, not "many"`},
		{"samples is 0", "latency_samples: 0",
			`2: probe.latency_samples must be a whole number, from 1 to 100000, not 0`},
		{"samples too many", "latency_samples: 100001",
			`2: probe.latency_samples must be a whole number, from 1 to 100000, not 100001`},
		{"depth broken", "depth: 1.5", `2: probe.depth must be a whole number, from 2 to 128, not "1.5"`},
		{"depth too large", "depth: 129", `2: probe.depth must be a whole number, from 2 to 128, not 129`},
		{"depth out of all", "depth: 99999999999999999999",
			`2: probe.depth must be a whole number, from 2 to 128, not "99999999999999999999"`},
		{"queue pairs", "queue_pairs: 17", `2: probe.queue_pairs must be auto or a whole number, from 1 to 16, not 17`},
		{"no queue pairs", "queue_pairs: 0", `2: probe.queue_pairs must be auto or a whole number, from 1 to 16, not 0`},
		{"an unknown extra", "extras: [loopback, gpus]",
			`2: probe.extras must be a list of loopback, paths, contention, gpu, each once, not "gpus"`},
		{"an extra twice", "extras: [paths, paths]",
			`2: probe.extras must be a list of loopback, paths, contention, gpu, each once, not "paths"`},
		{"solo_every", "solo_every: 0", `2: probe.solo_every must be a whole number, from 1 to 10000, not 0`},
		{"solo_every too large", "solo_every: 10001",
			`2: probe.solo_every must be a whole number, from 1 to 10000, not 10001`},
		{"min_of_expected is 0", "min_of_expected: 0",
			`2: probe.min_of_expected must be a ratio such as 0.2, more than 0 and at most 1, not 0`},
		{"min_of_expected in percent", "min_of_expected: 70",
			`2: probe.min_of_expected must be a ratio such as 0.2, more than 0 and at most 1, not 70`},
		{"min_of_expected with a sign", "min_of_expected: 70%",
			`2: probe.min_of_expected must be a ratio such as 0.2, more than 0 and at most 1, not "70%"`},
		{"min_of_expected is no number", "min_of_expected: NaN",
			`2: probe.min_of_expected must be a ratio such as 0.2, more than 0 and at most 1, not "NaN"`},
		{"busy_above is 0", "busy_above: 0",
			`2: probe.busy_above must be a ratio such as 0.2, more than 0 and at most 1, of a rail's capacity, not 0`},
		{"busy_above in percent", "busy_above: 20",
			`2: probe.busy_above must be a ratio such as 0.2, more than 0 and at most 1, of a rail's capacity, not 20`},
		{"busy_above with a sign", "busy_above: 20%",
			`2: probe.busy_above must be a ratio such as 0.2, more than 0 and at most 1, of a rail's capacity, not ` +
				`"20%"`},
		{"busy_above is no number", "busy_above: NaN",
			`2: probe.busy_above must be a ratio such as 0.2, more than 0 and at most 1, of a rail's capacity, not "NaN"`},
		{"traffic class too large", "traffic_class: 256",
			`2: probe.traffic_class must be auto or a whole number, from 0 to 255, not 256`},
		{"traffic class by name", "traffic_class: af31",
			`2: probe.traffic_class must be auto or a whole number, from 0 to 255, not "af31"`},
		{"service level", "service_level: 16",
			`2: probe.service_level must be auto or a whole number, from 0 to 15, not 16`},
		{"auto by its number", "service_level: -1",
			`2: probe.service_level must be auto or a whole number, from 0 to 15, not "-1"`},
		{"partition of nobody", "pkey: 0x8000",
			`2: probe.pkey must be a partition key, from 0x0001 to 0xffff, without 0x8000, not "0x8000"`},
		{"partition too large", "pkey: 65536",
			`2: probe.pkey must be a partition key, from 0x0001 to 0xffff, without 0x8000, not "65536"`},
		// Sizes.
		{"burst too short", "burst: 0.5ms", `2: probe.burst must be a duration such as 90s or 1m30s, from 1ms to ` +
			`1s, not 500µs`},
		{"burst too long", "burst: 2s", `2: probe.burst must be a duration such as 90s or 1m30s, from 1ms to ` +
			`1s, not 2s`},
		{"budget without time", "budget: 8GiB",
			wantBudget + `"8GiB"`},
		{"budget by the year", "budget: 8GiB/y",
			wantBudget + `"8GiB/y"`},
		{"budget overflows", "budget: 4194304TiB/m",
			wantBudget + `"4194304TiB/m"`},
		{"budget too small", "budget: 1MB/h",
			wantBudget + `1000000/h`},
		{"budget without %", "budget: 0.005",
			wantBudget + `"0.005"`},
		{"budget is no number", "budget: x%",
			wantBudget + `"x%"`},
		{"all of the time", "budget: 100%",
			wantBudget + `100%`},
		{"no time", "budget: 0%",
			wantBudget + `0/h`},
		{"less than no time", "budget: -1%",
			wantBudget + `-1%`},
		{"budget of nothing", "budget: NaN%",
			wantBudget + `NaN%`},
		{"memory to come", "memory: cuda_dmabuf",
			`2: probe.memory must be host (GPU memory is not supported yet), not "cuda_dmabuf"`},
		{"unknown memory", "memory: disk",
			`2: probe.memory must be host (GPU memory is not supported yet), not "disk"`},
		{"memory is nothing", "memory:", `2: probe.memory must be host (GPU memory is not supported yet), not ""`},
		{"insecure is a word", "insecure: 'true'", `2: probe.insecure must be true or false, not "true"`},
		{"insecure is a list", "insecure: []", `2: probe.insecure must be true or false, not a list`},
		{"an empty name", "name: ''",
			`2: probe.name must be printable text of at most 253 bytes without spaces around it, not ""`},
		{"a name in two lines", `name: "a\nb"`, `2: ` + wantName + `"a\nb"`},
		{"a name with blanks around", "name: ' a'", `2: ` + wantName + `" a"`},
		{"a name too long", "name: " + strings.Repeat("n", 254),
			`2: ` + wantName + `"` + strings.Repeat("n", 254) + `"`},
		// Addresses.
		{"listen without a port", "listen: 0.0.0.0",
			`2: probe.listen must be host:port, such as 0.0.0.0:10092, not "0.0.0.0"`},
		{"listen on a service", "listen: :http",
			`2: probe.listen must be host:port, such as 0.0.0.0:10092, not ":http"`},
		{"listen too high", "listen: :65536", `2: probe.listen must be host:port, such as 0.0.0.0:10092, not ":65536"`},
		{"listen at nonsense", "listen: 'a b:1'",
			`2: probe.listen must be host:port, such as 0.0.0.0:10092, not "a b:1"`},
		{"peers is a word", "peers: spark-02",
			`2: probe.peers must be a list, such as [spark-02, spark-03:10092], not "spark-02"`},
		{"a peer is nothing", "peers:\n  - a\n  -", `4: ` + wantPeer + `""`},
		{"a peer is a list", "peers: [[a]]", `2: ` + wantPeer + `a list`},
		{"a peer without brackets", "peers: ['fd00::1']", `2: ` + wantPeer + `"fd00::1"`},
		{"a peer with half a bracket", "peers: ['[fd00::1']", `2: ` + wantPeer + `"[fd00::1"`},
		{"a peer with port 0", "peers: ['a:0']", `2: ` + wantPeer + `"a:0"`},
		{"a peer without a host", "peers: [':10092']", `2: ` + wantPeer + `":10092"`},
		{"a peer is a URL", "peers: ['http://a']", `2: ` + wantPeer + `"http://a"`},
		{"a name that is an address", "peers: ['dns+10.0.0.1:7']", `2: ` + wantName2 + `"dns+10.0.0.1:7"`},
		{"a name that is nothing", "peers: [dns+]", `2: ` + wantName2 + `"dns+"`},
		{"a name of another kind", "peers: ['dnssrv+a']", `2: ` + wantPeer + `"dnssrv+a"`},
		{"a name like a URL", "peers: ['dns://a:1']", `2: ` + wantPeer + `"dns://a:1"`},
		{"a name twice", "peers: ['dns+a', 'dns+A:10092']", `2: duplicate peer A:10092; the first is in line 2`},
		{"a name that is a peer", "peers: ['a', 'dns+a']", `2: duplicate peer a:10092; the first is in line 2`},
		{"too many names", "peers: [" + seventeen() + "]", `2: probe.peers has 17 items with dns+ or file:; 16 at most`},
		{"a file of another kind", "peers: ['file:/etc/peers/*.txt']", `2: ` + wantFile + `"file:/etc/peers/*.txt"`},
		{"a file without a name", "peers: ['file:']", `2: ` + wantFile + `"file:"`},
		{"a directory with a wildcard", "peers: ['file:/etc/*/peers.yml']", `2: ` + wantFile + `"file:/etc/*/peers.yml"`},
		{"a broken pattern", "peers: ['file:/etc/[a.yml']", `2: ` + wantFile + `"file:/etc/[a.yml"`},
		{"a file twice", "peers: ['file:/a.yml', 'file:/b/../a.yml', 'file:/a.yml']",
			`2: duplicate file:/b/../a.yml; the first is in line 2`},
		{"fanout is 0", "peers: [a]\nfanout: 0", `3: probe.fanout must be a whole number, from 1 to 100, not 0`},
		{"fanout is all", "peers: [a]\nfanout: all", `3: probe.fanout must be a whole number, from 1 to 100, not "all"`},
		{"a peer twice", "peers:\n- a\n- b\n- A:10092", `5: duplicate peer A:10092; the first is in line 3`},
		{"a name twice, once to the root", "peers: [spark, spark.]",
			`2: duplicate peer spark.:10092; the first is in line 2`},
		{"an address twice, once within IPv6", "peers: [10.0.0.1, '[::ffff:10.0.0.1]']",
			`2: duplicate peer [::ffff:10.0.0.1]:10092; the first is in line 2`},
		{"a peer that is nothing", "peers: [null]", `2: ` + wantPeer + `"null"`},
		{"a label that is nothing", "peers: [spark..lan]", `2: ` + wantPeer + `"spark..lan"`},
		{"an address twice", "peers: ['[fd00::1]', '[fd00:0::1]:10092']",
			`2: duplicate peer [fd00::1]:10092; the first is in line 2`},
		{"too many", "peers: [" + strings.Repeat("a,", 10001) + "]", `2: probe.peers has 10001 peers; 10000 at most`},
		// Files.
		{"no such token", "token_file: /no/such",
			`2: probe.token_file "/no/such": no such file or directory; it must hold the secret that all peers ` +
				`share, or two of them, one per line`},
		{"the token is a directory", "token_file: .",
			`2: probe.token_file "` + dir +
				`": not a regular file; it must hold the secret that all peers share, or two of them, one per line`},
		{"the token is a device", "token_file: /dev/zero",
			`2: probe.token_file "/dev/zero": not a regular file; it must hold the secret that all peers share, or ` +
				`two of them, one per line`},
		{"the token is empty", "token_file: empty",
			`2: probe.token_file "` + dir +
				`/empty": empty; it must hold the secret that all peers share, or two of them, one per line`},
		{"the token is blank", "token_file: blank",
			`2: probe.token_file "` + dir +
				`/blank": empty; it must hold the secret that all peers share, or two of them, one per line`},
		{"three tokens", "token_file: lines",
			`2: probe.token_file "` + dir +
				`/lines": 3 lines; at most 2 are allowed; it must hold the secret that all peers share, or two of ` +
				`them, one per line`},
		{"the token is too long", "token_file: long",
			`2: probe.token_file "` + dir +
				`/long": longer than 4096 bytes; it must hold the secret that all peers share, or two of them, one ` +
				`per line`},
		{"a name with a line end", `token_file: "a\nb"`,
			`2: probe.token_file "` + dir +
				`/a\nb": no such file or directory; it must hold the secret that all peers share, or two of them, ` +
				`one per line`},
		{"no name", "token_file:", `2: probe.token_file must be the name of a file, not ""`},
		{"no such certificate", "tls:\n  cert_file: /no/such",
			`3: probe.tls.cert_file "/no/such": no such file or directory`},
		{"an empty authority", "tls: {client_ca_file: empty}",
			`2: probe.tls.client_ca_file "` + dir + `/empty": empty`},
		// Values that conflict.
		{"nobody", "{}", `2: probe has neither listen nor peers: no peer to answer or to ask`},
		{"nobody to ask", "peers: []", `2: probe has neither listen nor peers: no peer to answer or to ask`},
		{"answering without proof", "peers: [a]\nlisten: :1",
			`3: probe.listen needs token_file or tls.client_ca_file, so that only peers are answered; or insecure: ` +
				`true, to answer anyone`},
		{"answering, insecure: false", "listen: :1\ninsecure: false",
			`2: probe.listen needs token_file or tls.client_ca_file, so that only peers are answered; or insecure: ` +
				`true, to answer anyone`},
		{"allowed names without an authority", "peers: [a]\ntls: {client_allowed_names: [b]}",
			`3: probe.tls has client_allowed_names without client_ca_file, the authority that signs the ` +
				`certificates with these names`},
		{"allowed names that are no list", "tls: {client_allowed_names: b}",
			`2: probe.tls.client_allowed_names must be a list of 1 to 1000 names, such as ["*.gpu.example.com"], ` +
				`not "b"`},
		{"no allowed names", "tls: {client_allowed_names: []}",
			`2: probe.tls.client_allowed_names must be a list of 1 to 1000 names, such as ["*.gpu.example.com"], ` +
				`not a list`},
		{"an address for an allowed name", "tls: {client_allowed_names: [10.0.0.1]}",
			`2: ` + wantAllowed + `"10.0.0.1"`},
		{"an asterisk in the middle", `tls: {client_allowed_names: ["gpu-*.example.com"]}`,
			`2: ` + wantAllowed + `"gpu-*.example.com"`},
		{"an asterisk alone", `tls: {client_allowed_names: ["*"]}`, `2: ` + wantAllowed + `"*"`},
		{"an empty allowed name", `tls: {client_allowed_names: [""]}`, `2: ` + wantAllowed + `""`},
		{"answering with half of TLS", "listen: :1\ntls: {cert_file: crt, key_file: key}",
			`2: probe.listen needs token_file or tls.client_ca_file, so that only peers are answered; or insecure: ` +
				`true, to answer anyone`},
		{"insecure with a token", "listen: :1\ntoken_file: token\ninsecure: true",
			`4: probe.insecure is true, but there is a token_file: peers are known by it, so remove one of the two`},
		{"insecure with an authority",
			"listen: :1\ninsecure: true\ntls: {cert_file: crt, key_file: key, client_ca_file: ca}",
			`3: probe.insecure is true, but there is tls.client_ca_file: peers are known by it, so remove one of ` +
				`the two`},
		{"certificate without key", "peers: [a]\ntls: {cert_file: crt}",
			`3: probe.tls has cert_file without key_file: write both or neither`},
		{"key without certificate", "peers: [a]\ntls: {key_file: key}",
			`3: probe.tls has key_file without cert_file: write both or neither`},
		{"an authority without certificate", "listen: :1\ntls: {client_ca_file: ca}",
			`3: probe.tls has client_ca_file without cert_file and key_file, which answering peers needs`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Parse(file, []byte(below(tt.in)))
			if err == nil {
				t.Fatalf("accepted as %+v", c.Probe)
			}
			if diff := cmp.Diff(file+":"+tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := config.Parse(file, []byte("probe:\n"))
	if want := file + ":1: probe has neither listen nor peers: no peer to answer or to ask"; err == nil ||
		err.Error() != want {
		t.Errorf("an empty probe: %v, want %s", err, want)
	}
}

// seventeen returns seventeen names, one too many.
func seventeen() string {
	var names []string
	for i := range 17 {
		names = append(names, fmt.Sprintf("dns+a%d", i))
	}
	return strings.Join(names, ",")
}

// TestCheckProbe: the defaults are valid, and a problem has its key in a field for the command line.
func TestCheckProbe(t *testing.T) {
	opts := options.DefaultOptions()
	if bad := config.Check(&opts); bad != nil {
		t.Errorf("the defaults: %+v", bad)
	}
	opts.LatencySamples = -1
	if diff := cmp.Diff(&config.Problem{Key: "latency_samples",
		Text: "must be a whole number, from 1 to 100000, not -1"}, config.Check(&opts)); diff != "" {
		t.Error(diff)
	}
}

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want config.Size // -1: rejected
	}{
		{"0", 0}, {"4096", 4096}, {"1B", 1}, {"1KB", 1000}, {"1KiB", 1024}, {"2MB", 2e6}, {"2MiB", 2 << 20},
		{"3GB", 3e9}, {"3GiB", 3 << 30}, {"1TB", 1e12}, {"1TiB", 1 << 40},
		{"9223372036854775807", math.MaxInt64}, {"8388607TiB", 8388607 << 40},
		{"9223372036854775808", -1}, {"8388608TiB", -1}, {"", -1}, {"B", -1}, {"MiB", -1}, {"1 MiB", -1}, {"1mib", -1},
		{"1M", -1}, {"+1", -1}, {"-1", -1}, {"0x10", -1}, {"1e6", -1}, {"1_000", -1}, {"1KiBB", -1},
	} {
		var got config.Size
		err := got.UnmarshalText([]byte(tt.in))
		if err != nil {
			got = -1
		}
		if got != tt.want {
			t.Errorf("size %q is %d, %v; want %d", tt.in, got, err, tt.want)
		}
	}
}

// acceptable verifies the invariants of every accepted probe section.
func acceptable(o *options.Options) error {
	switch {
	case config.Check(o) != nil:
		return fmt.Errorf("out of range: %+v", config.Check(o))
	case o.Listen == "" && len(o.Peers)+len(o.DNS) == 0,
		o.Listen != "" && o.Security.TokenFile == "" && o.Security.ClientCAFile == "" && !o.Security.Insecure,
		o.Timeout > o.Interval, o.PKey != 0 && o.PKey&0x7fff == 0, o.Memory != "host",
		strings.ContainsAny(o.Name, "\n\x00"):
		return fmt.Errorf("accepted %+v", o)
	}
	seen := map[string]bool{}
	for _, p := range append(slices.Clone(o.Peers), o.DNS...) {
		if seen[p] || !strings.Contains(p, ":") || strings.ContainsAny(p, " \n/") {
			return fmt.Errorf("accepted the peer %q of %q", p, o.Peers)
		}
		seen[p] = true
	}
	return nil
}
