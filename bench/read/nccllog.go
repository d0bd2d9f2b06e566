package read

import (
	"regexp"
	"strings"
)

// The messages are those of NCCL 2.10 to 2.30: src/init.cc, src/graph/topo.cc, src/transport/{net_socket,net_ib}.cc and
// net_ib/init.cc; "NET/IB/GDR enabled" is in tutorials.
var (
	ncclDevice  = regexp.MustCompile(`\[\d+\] ?(([\w.+-]+):\d+(?:/[\w.-]+)?)`)
	ncclSocket  = regexp.MustCompile(`\[\d+\]([\w.-]+):`)
	ncclGDR     = regexp.MustCompile(`^NET/([\w .-]+) : GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '([^']*)'`)
	ncclGDROld  = regexp.MustCompile(`^GPU Direct RDMA (Enabled|Disabled) for (GPU \S+ / HCA \S+(?: \(distance[^)]*\))?)`)
	ncclVirtual = regexp.MustCompile(`^NET/IB : Made virtual device \[\d+\] name=(\S+) speed=(\d+) ndevs=(\d+)`)
	ncclVia     = regexp.MustCompile(`^(?:Channel|CollNet) .* via ((?:NET|COLLNET)/[\w .+-]+/\d+(?:\(\d+\))?(?:/GDRDMA)?` +
		`(?:\(PCI\))?(?:/Shared)?)(?: comm .*)?$`)
	ncclMark = regexp.MustCompile(`NCCL (INFO|WARN) `)
)

const ncclSockets = "fallback to sockets: NCCL does not use RDMA"

type ncclLog struct {
	noDocuments
	*sink
	seen  map[string]bool
	first int // line of the first message
}

func newNCCLLog(s *sink) parser { return &ncclLog{sink: s, seen: map[string]bool{}} }

// text reads the messages of a line: of writers that interleave, it may have several.
func (p *ncclLog) text(l line) {
	if !strings.Contains(l.text, "NCCL ") {
		return
	}
	marks := ncclMark.FindAllStringSubmatchIndex(l.text, -1)
	for i, at := range marks {
		end := len(l.text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		if p.first == 0 {
			p.first = l.number
		}
		text := strings.TrimSpace(l.text[at[1]:end])
		if l.text[at[2]:at[3]] == "WARN" {
			p.row(l, "warning: "+text, "", ncclWarning(text)...)
		}
		p.message(l, text)
	}
}

func ncclWarning(text string) []string {
	if strings.Contains(text, "No device found") {
		return []string{ncclSockets}
	}
	return nil
}

func (p *ncclLog) message(l line, text string) {
	switch {
	case strings.HasPrefix(text, "NET/IB : Using "):
		for _, m := range ncclDevice.FindAllStringSubmatch(strings.Split(text, ";")[0], -1) {
			p.row(l, "network IB "+m[1], m[2])
		}
	case strings.HasPrefix(text, "NET/IB : No device found"):
		p.row(l, "network IB: no device found", "", ncclSockets)
	case strings.HasPrefix(text, "NET/Socket : Using "):
		for _, m := range ncclSocket.FindAllStringSubmatch(text, -1) {
			p.row(l, "network Socket "+m[1], "")
		}
	case strings.HasPrefix(text, "Using network "):
		name := text[len("Using network "):]
		if name == "Socket" {
			p.row(l, "network Socket", "", ncclSockets)
		} else {
			p.row(l, "network "+name, "")
		}
	case strings.HasPrefix(text, "NET/IB/GDR "):
		p.row(l, "GPUDirect RDMA "+text[len("NET/IB/GDR "):], "")
	case strings.HasPrefix(text, "DMA-BUF is available on GPU device "):
		p.row(l, "DMA-BUF available, GPU "+text[len("DMA-BUF is available on GPU device "):], "")
	case strings.HasPrefix(text, "NET/"):
		if m := ncclGDR.FindStringSubmatch(text); m != nil {
			p.row(l, "GPUDirect RDMA "+strings.ToLower(m[2])+", "+m[1], m[3])
		} else if m := ncclVirtual.FindStringSubmatch(text); m != nil {
			p.row(l, "network IB virtual device of "+m[3], strings.ReplaceAll(m[1], "+", ","))
		}
	case strings.HasPrefix(text, "GPU Direct RDMA "): // until 2.27
		if m := ncclGDROld.FindStringSubmatch(text); m != nil {
			p.row(l, "GPUDirect RDMA "+strings.ToLower(m[1])+", "+m[2], "")
		}
	case strings.HasPrefix(text, "Channel "), strings.HasPrefix(text, "CollNet "):
		if m := ncclVia.FindStringSubmatch(text); m != nil {
			p.row(l, "channels via "+m[1], "")
		}
	}
}

// row adds what no line before said: every rank says most of it.
func (p *ncclLog) row(l line, test, rail string, marks ...string) {
	if key := test + "\x00" + rail; !p.seen[key] && len(p.seen) < maxRows {
		p.seen[key] = true
		p.add(Result{Tool: "nccl", Test: test, Rail: rail, Line: l.number, Marks: marks})
	}
}

func (p *ncclLog) end() {
	if p.first > 0 && len(p.rows) == 0 {
		p.fail(p.first, "nccl: the log says nothing of the network; run with NCCL_DEBUG=INFO")
	}
}
