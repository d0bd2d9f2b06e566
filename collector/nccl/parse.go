package nccl

import (
	"bytes"
	"strconv"
	"strings"
)

// event is one fact in a line. Its name lies in the line: it must be copied to be kept.
type event struct {
	kind      eventKind
	name      []byte // network, device, or plugin of a channel
	transport string // of a channel, without the plugin
	on        bool   // gdrState: enabled; channel: by GPUDirect RDMA
	nodes     int    // of commSize
	warning   string // kind, of warned
	status    string // of warned, where it is a completion
}

type eventKind int

const (
	began    eventKind = iota + 1 // "Bootstrap : Using eth0:…", "NCCL version 2.28.9+cuda13.0": a process begins
	network                       // "Using network IB"
	gdrState                      // "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"
	channel                       // "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
	commSize                      // "comm 0x… rank 0 nRanks 16 nNodes 2 …"
	warned                        // any WARN

	// Causes of a fallback. What the user asked for counts more than what is missing.
	noPlugin // "Failed to initialize NET plugin IB"
	noDevice // "NET/IB : No device found."
	disabled // "NCCL_IB_DISABLE set by environment to 1"
	forced   // "NCCL_NET set by environment to Socket"
)

// How a channel runs, as NCCL calls it, without the number of its device.
const (
	netTransport     = "NET/"     // and the plugin
	collNetTransport = "COLLNET/" // and the plugin
	p2pTransport     = "P2P"
	shmTransport     = "SHM"
	otherTransport   = "other"
	gdrSuffix        = "/GDRDMA"
)

// maxName bounds what the log may put into a label.
const maxName = 64

// The names of networks in the log. The tutorials' InfiniBand is what NCCL calls IB.
const (
	socketNetwork = "Socket"
	ibNetwork     = "IB"
)

// parse calls each with the facts of a line: none, mostly, and then without allocating. A line that was torn apart by
// another writer's may hold several messages; an incomplete part gives nothing but that it is a warning. Colours are
// removed from line in place. The strings are those of NCCL 2.10 to 2.30 (src/debug.cc, src/init.cc, src/graph/topo.cc,
// src/plugin/net.cc, src/transport/{net,p2p,shm,coll_net,net_ib}.cc).
func parse(line []byte, each func(event)) {
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = plain(line)
	}
	at, level := mark(line)
	for level != 0 {
		file, rest := line[:at], line[at+len("NCCL INFO "):]
		text := rest
		next, nextLevel := mark(rest)
		if nextLevel != 0 {
			text = rest[:next]
		}
		text = bytes.Trim(text, " \r\t\x00")
		if level == 'W' {
			warning(file, text, each)
		}
		message(text, each)
		line, at, level = rest, next, nextLevel
	}
}

// mark finds "NCCL INFO " or "NCCL WARN ". The level is 'I', 'W', or 0 if it finds neither.
func mark(line []byte) (at int, level byte) {
	for from := 0; ; {
		i := bytes.Index(line[from:], []byte("NCCL "))
		if i < 0 {
			return 0, 0
		}
		at = from + i
		from = at + len("NCCL ")
		switch rest := line[from:]; {
		case bytes.HasPrefix(rest, []byte("INFO ")):
			return at, 'I'
		case bytes.HasPrefix(rest, []byte("WARN ")):
			return at, 'W'
		}
	}
}

// plain removes the escape sequences of a terminal, in place.
func plain(line []byte) []byte {
	out := line[:0]
	for i := 0; i < len(line); i++ {
		if line[i] != 0x1b {
			out = append(out, line[i])
			continue
		}
		if i+1 < len(line) && line[i+1] == '[' {
			for i += 2; i < len(line) && (line[i] < '@' || line[i] > '~'); i++ { //nolint:revive // up to the final byte
			}
		}
	}
	return out
}

// message parses the text of a message.
func message(text []byte, each func(event)) {
	switch {
	case bytes.HasPrefix(text, []byte("Channel ")), bytes.HasPrefix(text, []byte("Coll")):
		viaChannel(text, each)
	case bytes.HasPrefix(text, []byte("NET/")):
		netMessage(text, each)
	case bytes.HasPrefix(text, []byte("Bootstrap : Using ")), bytes.HasPrefix(text, []byte("Bootstrap: Using ")),
		bytes.HasPrefix(text, []byte("NCCL version ")):
		each(event{kind: began})
	case bytes.HasPrefix(text, []byte("comm 0x")):
		if n, ok := numberAfter(text, " nNodes "); ok {
			each(event{kind: commSize, nodes: n})
		}
	case bytes.HasPrefix(text, []byte("Using network ")):
		if name := text[len("Using network "):]; clean(name, " ._-+()") {
			each(event{kind: network, name: name})
		}
	case bytes.HasPrefix(text, []byte("NCCL_IB_DISABLE set ")):
		if value := setting(text); len(value) > 0 && value[0] >= '1' && value[0] <= '9' {
			each(event{kind: disabled})
		}
	case bytes.HasPrefix(text, []byte("NCCL_NET set ")):
		if bytes.EqualFold(setting(text), []byte(socketNetwork)) {
			each(event{kind: forced})
		}
	case string(text) == "Failed to initialize NET plugin IB":
		each(event{kind: noPlugin})
	}
}

// netMessage is a message that begins with NET/.
func netMessage(text []byte, each func(event)) {
	switch {
	case bytes.HasPrefix(text, []byte("NET/IB : No device found")):
		each(event{kind: noDevice})
	case bytes.HasPrefix(text, []byte("NET/IB : Using ")):
		// "[0]mlx5_0:1/RoCE [RO]; OOB …", and without any "[RO]; OOB …".
		devices, _, _ := bytes.Cut(text[len("NET/IB : Using "):], []byte(";"))
		if bytes.Equal(bytes.TrimSpace(devices), []byte("[RO]")) {
			each(event{kind: noDevice})
		}
	// as tutorials have it, without a device
	case string(text) == "NET/IB/GDR enabled", string(text) == "NET/IB/GDR disabled":
		each(event{kind: gdrState, on: text[len(text)-len("abled")-1] == 'n'})
	default:
		gdrMessage(text, each)
	}
}

// gdrMessage is "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'". Messages of sockets, which never reach GPU
// memory, and of GIN (GPU-initiated networking) are not about the network's adapters.
func gdrMessage(text []byte, each func(event)) {
	plugin, rest, found := bytes.Cut(text[len("NET/"):], []byte(" : GPU Direct RDMA "))
	if !found || string(plugin) == socketNetwork || bytes.HasPrefix(plugin, []byte("GIN")) {
		return
	}
	rest, on := bytes.CutPrefix(rest, []byte("Enabled for HCA "))
	rest, off := bytes.CutPrefix(rest, []byte("Disabled for HCA "))
	if on == off {
		return
	}
	_, rest = digits(rest)
	rest, found = bytes.CutPrefix(rest, []byte(" '"))
	device, whole := bytes.CutSuffix(rest, []byte("'"))
	if found && whole && clean(device, "._-+:") {
		each(event{kind: gdrState, name: device, on: on})
	}
}

// viaChannel is "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0(1)/GDRDMA(PCI)/Shared" or "CollNet 00/0 : 0 [send] via
// COLLNET/SHARP/0/GDRDMA". Some versions add " comm 0x… nRanks 08".
func viaChannel(text []byte, each func(event)) {
	_, via, found := bytes.Cut(text, []byte(" via "))
	if !found {
		return // which ranks a channel passes
	}
	via, _, _ = bytes.Cut(via, []byte(" comm 0x"))
	e := event{kind: channel, transport: netTransport}
	rest, found := bytes.CutPrefix(via, []byte(netTransport))
	if !found {
		e.transport = collNetTransport
		rest, found = bytes.CutPrefix(via, []byte(collNetTransport))
	}
	if !found {
		if e.transport = localTransport(via); e.transport != "" {
			each(e)
		}
		return
	}
	if e.name, via, found = bytes.Cut(rest, []byte("/")); !found || !clean(e.name, " ._-+()") {
		return
	}
	n, via := digits(via)
	if i := bytes.IndexByte(via, ')'); i > 0 && via[0] == '(' { // through another GPU's proxy (PXN)
		via = via[i+1:]
	}
	via, e.on = bytes.CutPrefix(via, []byte(gdrSuffix))
	via = bytes.TrimPrefix(via, []byte("(PCI)"))
	via = bytes.TrimPrefix(via, []byte("/Shared"))
	if n > 0 && len(via) == 0 {
		each(e)
	}
}

// localTransport is how a channel runs inside a node; empty if that is not a name.
func localTransport(via []byte) string {
	switch {
	case !clean(via, " ./_-[]()"):
		return ""
	case bytes.HasPrefix(via, []byte("P2P/")):
		return p2pTransport
	case string(via) == "SHM", bytes.HasPrefix(via, []byte("SHM/")), string(via) == "direct shared memory":
		return shmTransport
	}
	return otherTransport
}

// setting returns the value in "NCCL_X set by environment to 1.".
func setting(text []byte) []byte {
	_, value, _ := bytes.Cut(text, []byte(" to "))
	return bytes.TrimSuffix(value, []byte("."))
}

// digits returns how many digits text begins with, and what follows.
func digits(text []byte) (n int, rest []byte) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n, text[n:]
}

// numberAfter returns the number that follows key.
func numberAfter(text []byte, key string) (value int, ok bool) {
	i := bytes.Index(text, []byte(key))
	if i < 0 {
		return 0, false
	}
	text = text[i+len(key):]
	n, _ := digits(text)
	if n > 6 {
		return 0, false
	}
	value, err := strconv.Atoi(string(text[:n]))
	return value, err == nil
}

// clean reports whether name is a name: letters, digits and what is in extra.
func clean(name []byte, extra string) bool {
	for _, b := range name {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case strings.IndexByte(extra, b) >= 0:
		default:
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxName
}
