package nccl

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/ncclnet"
)

// event is one fact from a line, or about its file. name points into the line: copy it to keep it.
type event struct {
	kind      eventKind
	name      []byte // network or device, or the plugin of a channel
	transport string // transport of a channel, without the plugin
	on        bool   // gdrState: it is enabled; channel: it uses GPUDirect RDMA
	count     int64  // commSize: number of nodes; skipped: number of bytes
	warning   string // kind of a warning
	status    string // status of the completion that the warning reports, if any
}

type eventKind int

const (
	began   eventKind = iota + 1 // "Bootstrap : Using eth0:…", "NCCL version 2.28.9+cuda13.0": a process begins
	network                      // "Using network IB"
	// "NET/OFI Selected provider is efa, fabric is …": libfabric's provider, one layer below the network
	provider
	gdrState // "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"
	channel  // "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
	commSize // "comm 0x… rank 0 nRanks 16 nNodes 2 …"
	warned   // any WARN, and RCCL's FATAL ERROR

	// Events of the file.
	restarted // the file was rewritten
	skipped   // a part of the file is not read
	cut       // the rest of the next line is not read
	closed    // the file is no longer read

	// Causes of a fallback, the strongest last: a user's choice is stronger than missing software.
	noPlugin    // "Failed to initialize NET plugin IB"
	noDevice    // "NET/IB : No device found."
	noVerbs     // "Failed to open libibverbs.so[.1]"
	noLibfabric // "NET/OFI No eligible providers were found", or a provider that uses sockets was selected
	disabled    // "NCCL_IB_DISABLE set by environment to 1"
	forced      // "NCCL_NET set by environment to Socket"
)

// Transports of a channel, as NCCL names them, without the number of the device.
const (
	netTransport     = "NET/"     // followed by the plugin
	collNetTransport = "COLLNET/" // followed by the plugin
	otherTransport   = "other"
	gdrSuffix        = "/GDRDMA"
)

// Characters of names in labels, which have at most maxName characters.
const (
	maxName      = 64
	decimal      = "0123456789"
	alphanumeric = decimal + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	pluginName   = alphanumeric + " ._-+()" // also for the name of a network
)

// parse calls each with the facts of a line, mostly none. It allocates only to remove colours. If writers
// interleave, a line holds several messages. The strings are from NCCL 2.10 to 2.30 and RCCL 2.18 to 2.30
// (src/debug.cc, src/init.cc, src/graph/topo.cc, src/plugin/net.cc, src/transport/{net,p2p,shm,coll_net,net_ib}.cc).
func parse(line []byte, each func(event)) {
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = colour.ReplaceAll(line, nil)
	}
	m := mark(line)
	if !m.found {
		m = markFatal(line)
	}
	for m.found {
		rest := line[m.end:]
		text, next := rest, mark(rest)
		if next.found {
			text = rest[:next.begin]
		}
		if i := bytes.Index(text, []byte(" [repeated ")); i >= 0 { // Ray: "[repeated 7x across cluster]"
			text = text[:i]
		}
		text = bytes.Trim(text, " \r\t\x00")
		if m.warns && !ncclnet.Success(string(text)) {
			each(warning(line[:m.begin], text))
		}
		if e := message(text); e.kind != 0 {
			each(e)
		}
		line, m = rest, next
	}
}

// level is the level of a message, with its place in a line: the text follows.
type level struct {
	begin, end   int
	found, warns bool
}

// markFatal finds RCCL's level above WARN, which NCCL does not have (src/debug.cc since RCCL 2.27).
func markFatal(line []byte) level {
	const before, fatal = "] ", "[FATAL ERROR]: "
	i := bytes.Index(line, []byte(before+fatal))
	if i < 0 {
		return level{}
	}
	return level{begin: i + len(before), end: i + len(before+fatal), found: true, warns: true}
}

func mark(line []byte) level {
	for from := 0; ; from += len("NCCL ") {
		i := bytes.Index(line[from:], []byte("NCCL "))
		if i < 0 {
			return level{}
		}
		from += i
		warns := hasPrefix(line[from:], "NCCL WARN ")
		if warns || hasPrefix(line[from:], "NCCL INFO ") {
			return level{begin: from, end: from + len("NCCL INFO "), found: true, warns: warns}
		}
	}
}

// colour matches a terminal's escape sequence up to its final byte.
var colour = regexp.MustCompile(`\x1b(\[[^@-~]*[@-~]?)?`)

// message parses the text of a message. The event's kind is 0 if the message is not relevant.
func message(text []byte) event {
	switch {
	case hasPrefix(text, "Channel "), hasPrefix(text, "Coll"):
		return viaChannel(text)
	case hasPrefix(text, "NET/"):
		return netMessage(text)
	case hasPrefix(text, "Bootstrap : Using "), hasPrefix(text, "Bootstrap: Using "), hasPrefix(text, "NCCL version "),
		hasPrefix(text, "RCCL version "):
		return event{kind: began}
	case hasPrefix(text, "comm 0x"):
		if n, ok := numberAfter(text, " nNodes "); ok {
			return event{kind: commSize, count: int64(n)}
		}
	case hasPrefix(text, "Using network "):
		if name := text[len("Using network "):]; clean(name, pluginName) {
			return event{kind: network, name: name}
		}
	case hasPrefix(text, "NCCL_IB_DISABLE set "):
		if value := setting(text); len(value) > 0 && value[0] >= '1' && value[0] <= '9' {
			return event{kind: disabled}
		}
	case hasPrefix(text, "NCCL_NET set "):
		if bytes.EqualFold(setting(text), []byte("Socket")) {
			return event{kind: forced}
		}
	case string(text) == "Failed to initialize NET plugin IB":
		return event{kind: noPlugin}
	case hasPrefix(text, "Failed to open lib"), hasPrefix(text, "Count not open lib"),
		hasPrefix(text, "Could not open lib"):
		if ncclnet.NoVerbs(string(text)) {
			return event{kind: noVerbs}
		}
	}
	return event{}
}

func hasPrefix(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix
}

func netMessage(text []byte) event {
	switch {
	case hasPrefix(text, "NET/IB : No device found"):
		return event{kind: noDevice}
	case hasPrefix(text, "NET/IB : Using "):
		// "[0]mlx5_0:1/RoCE [RO]; OOB …", in some versions without "[RO]; OOB …".
		devices, _, _ := bytes.Cut(text[len("NET/IB : Using "):], []byte(";"))
		if string(bytes.TrimSpace(devices)) == "[RO]" {
			return event{kind: noDevice}
		}
		return event{}
	case hasPrefix(text, "NET/OFI No eligible providers"):
		return event{kind: noLibfabric}
	case hasPrefix(text, "NET/OFI Selected "):
		if name := []byte(ncclnet.Provider(string(text))); clean(name, alphanumeric+"._-+;") {
			return event{kind: provider, name: name}
		}
		return event{}
	case bytes.Contains(text, []byte(" speed change detected: ")):
		if _, _, _, slower := ncclnet.Slower(string(text)); slower {
			return event{kind: warned, warning: linkSlower}
		}
		return event{}
	// Tutorials show it without a device.
	case string(text) == "NET/IB/GDR enabled":
		return event{kind: gdrState, on: true}
	case string(text) == "NET/IB/GDR disabled":
		return event{kind: gdrState}
	}
	return gdrMessage(text)
}

// gdrMessage parses "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'". It ignores messages about sockets, which
// never access GPU memory, and about GIN (GPU-initiated networking), which do not describe the network's adapters.
func gdrMessage(text []byte) event {
	plugin, rest, _ := bytes.Cut(text[len("NET/"):], []byte(" : GPU Direct RDMA "))
	rest, on := bytes.CutPrefix(rest, []byte("Enabled for HCA "))
	rest, off := bytes.CutPrefix(rest, []byte("Disabled for HCA "))
	if on == off || string(plugin) == "Socket" || hasPrefix(plugin, "GIN") {
		return event{}
	}
	rest, quoted := bytes.CutPrefix(bytes.TrimLeft(rest, decimal), []byte(" '"))
	device, whole := bytes.CutSuffix(rest, []byte("'"))
	if !quoted || !whole || !clean(device, alphanumeric+"._-+:") {
		return event{}
	}
	return event{kind: gdrState, name: device, on: on}
}

// viaChannel parses "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(1)/GDRDMA(PCI)/Shared" or "CollNet 00/0 : 0 [send]
// via COLLNET/SHARP/0/GDRDMA". Some versions add " comm 0x… nRanks 08".
func viaChannel(text []byte) event {
	_, via, _ := bytes.Cut(text, []byte(" via ")) // a message without " via " lists the ranks of a channel
	via, _, _ = bytes.Cut(via, []byte(" comm 0x"))
	e := event{kind: channel, transport: netTransport}
	rest, found := bytes.CutPrefix(via, []byte(netTransport))
	if !found {
		e.transport = collNetTransport
		rest, found = bytes.CutPrefix(via, []byte(collNetTransport))
	}
	if !found {
		return localChannel(via)
	}
	e.name, rest, found = bytes.Cut(rest, []byte("/"))
	via = bytes.TrimLeft(rest, decimal)
	numbered := len(via) < len(rest)
	if i := bytes.IndexByte(via, ')'); i > 0 && via[0] == '(' { // via the proxy of another GPU (PXN)
		via = via[i+1:]
	}
	via, e.on = bytes.CutPrefix(via, []byte(gdrSuffix))
	via = bytes.TrimPrefix(via, []byte("(PCI)"))
	via = bytes.TrimPrefix(via, []byte("/Shared"))
	if !found || !clean(e.name, pluginName) || !numbered || len(via) > 0 {
		return event{}
	}
	return e
}

func localChannel(via []byte) event {
	switch {
	case !clean(via, alphanumeric+" ./_-[]()"):
		return event{}
	case hasPrefix(via, "P2P/"):
		return event{kind: channel, transport: "P2P"}
	case string(via) == "SHM", hasPrefix(via, "SHM/"), string(via) == "direct shared memory":
		return event{kind: channel, transport: "SHM"}
	}
	return event{kind: channel, transport: otherTransport}
}

func setting(text []byte) []byte {
	_, value, _ := bytes.Cut(text, []byte(" to "))
	return bytes.TrimSuffix(value, []byte("."))
}

func numberAfter(text []byte, key string) (value int, ok bool) {
	i := bytes.Index(text, []byte(key))
	if i < 0 {
		return 0, false
	}
	text = text[i+len(key):]
	n := len(text) - len(bytes.TrimLeft(text, decimal))
	if n > 6 {
		return 0, false
	}
	value, err := strconv.Atoi(string(text[:n]))
	return value, err == nil
}

// clean reports whether name has 1 to maxName bytes, all of them in characters.
func clean(name []byte, characters string) bool {
	return len(name) > 0 && len(name) <= maxName && len(bytes.Trim(name, characters)) == 0
}

// linkSlower is the kind of "speed change detected: 400000 -> 200000 Mbps", which NCCL 2.30 does not print as WARN.
const linkSlower = "link_slower"

// settings is the kind of RCCL's warnings about the host's and the job's settings, which NCCL does not print.
const settings = "settings"

// warnRule is a kind of warning, and the words that identify it. Any one of them suffices.
type warnRule struct {
	kind  string
	words []string
}

func warnRules() []warnRule {
	return []warnRule{
		{settings, []string{`Missing "iommu=pt"`, `Missing "amd_iommu=on"`, `Missing "HSA_FORCE_FINE_GRAIN_PCIE`,
			"HSA_NO_SCRATCH_RECLAIM=1 must be set", "NUMA auto ", "DMABUF Disabled"}},
		// The source file identifies it, which RCCL prints with its path. A port in use does not affect the job.
		{"ras", []string{" ras/", "/src/ras/"}},
		{"completion_error", []string{"Got completion ", "Got CQE with error"}},
		{"gid_change", []string{"GID table changed"}},
		{linkSlower, []string{" speed change detected: "}},
		{"async_event", []string{"async event", "async fatal event", "unknown event type"}},
		{"fatal", []string{"encountered a fatal error", "encountered a communication fatal error",
			"cannot recover from this network failure"}},
		{"no_device", []string{"No device found", "No EFA device found", "No IP interface found", "no interface found",
			"No usable listening interface", "Failed to initialize any NET plugin"}},
		{"registration", []string{"ibv_reg_mr", "ibv_reg_dmabuf_mr", "register memory"}},
		{"mismatch", []string{"ismatch", "incompatible"}},
		{"verbs", []string{"ibv_", "mlx5dv_", "NET/IB"}},
		{"timeout", []string{"imed out", "imeout"}},
		{"cuda", []string{"Cuda failure", "CUDA", "cuda", "HIP failure", "hipIpc"}},
		{"shm", []string{"shared memory", "shm", "posix_fallocate"}},
		{"socket", []string{"ocket", "Connect", "onnection ", "bind failed", "Net : ", "accept", "Accept"}},
		{"bootstrap", []string{"ootstrap"}},
		{"topology", []string{"opology", "Attribute ", "XML", "graph/"}},
		{"plugin", []string{"lugin", "NET/OFI"}},
		{"other", nil},
	}
}

// statusNames returns the statuses of completions of NCCL's connections (RC) by number: enum ibv_wc_status of
// verbs.h without IBV_WC_ and _ERR. A status without a name here is counted as other.
func statusNames() []string {
	return []string{0: "other", 1: "loc_len", 2: "loc_qp_op", 4: "loc_prot", 5: "wr_flush", 7: "bad_resp",
		8: "loc_access", 9: "rem_inv_req", 10: "rem_access", 11: "rem_op", 12: "retry_exc", 13: "rnr_retry_exc",
		19: "fatal", 20: "resp_timeout", 21: "general"}
}

// warning classifies the text of a warning. file is the text before it: "[2025-01-01 12:00:00] host:pid:tid [0]
// misc/socket.cc:72 (function) ". Warnings are rare, so warning may allocate.
func warning(file, text []byte) event {
	whole := string(file) + string(text)
	e := event{kind: warned}
	for _, rule := range warnRules() {
		e.warning = rule.kind
		if slices.ContainsFunc(rule.words, func(word string) bool { return strings.Contains(whole, word) }) {
			break
		}
	}
	if strings.Contains(whole, "Got completion ") {
		e.status = completionStatus(text)
	}
	return e
}

// completion matches the number of a status: "with status=IBV_WC_RETRY_EXC_ERR(12) opcode=…" (since 2.27), "with
// status=12 opcode=…", and "with error 12, opcode …" (until 2.19).
var completion = regexp.MustCompile(` with (?:error |status=(?:[^ (]*\()?)([0-9]{1,6})`)

func completionStatus(text []byte) string {
	if m := completion.FindSubmatch(text); m != nil {
		n, _ := strconv.Atoi(string(m[1])) // the expression matches only digits
		if names := statusNames(); n < len(names) && names[n] != "" {
			return names[n]
		}
	}
	return "other"
}
