package read

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/ncclnet"
)

// Messages of NCCL 2.10 to 2.30 and RCCL 2.18 to 2.30: src/init.cc, src/debug.cc, src/graph/topo.cc,
// src/misc/rocmwrap.cc, src/transport/{net_socket,net_ib}.cc and net_ib/init.cc; "NET/IB/GDR enabled" is in tutorials.
var (
	ncclDevice = regexp.MustCompile(`\[\d+\] ?(([\w.+-]+):\d+(?:/[\w.-]+)?)`)
	ncclSocket = regexp.MustCompile(`\[\d+\]([\w.-]+):`)
	ncclGDR    = regexp.MustCompile(`^NET/([\w .-]+) : GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '([^']*)'`)
	ncclGDROld = regexp.MustCompile(
		`^GPU Direct RDMA (Enabled|Disabled) for (GPU \S+ / HCA \S+(?: \(distance[^)]*\))?)`)
	ncclVirtual = regexp.MustCompile(`^NET/IB : Made virtual device \[\d+\] name=(\S+) speed=(\d+) ndevs=(\d+)`)
	ncclVia     = regexp.MustCompile(
		`^(?:Channel|CollNet) .* via ((?:NET|COLLNET)/[\w .+-]+/\d+(?:\(\d+\))?(?:/GDRDMA)?` +
			`(?:\(PCI\))?(?:/Shared)?)(?: comm .*)?$`)
	ncclNodes = regexp.MustCompile(`^comm 0x.* nNodes (\d{1,6}) `)
	ncclMark  = regexp.MustCompile(`NCCL (INFO|WARN) |\] \[(FATAL) ERROR\]: `)
	// rcclBareVersion matches a line without a level. pdsh puts the name of the host before it.
	rcclBareVersion = regexp.MustCompile(`^(?:[\w.-]+: +)?RCCL version `)
	rcclVersion     = regexp.MustCompile(`^RCCL version (?:: )?(\d[\w.+/:-]*(?: [\w.+/:-]+)?)$`)
)

const ncclSockets = "fallback to sockets: NCCL does not use RDMA"

type ncclLog struct {
	noDocuments
	*sink
	seen     map[string]bool
	first    int // line of the first message
	versions int // number of rows with a version

	sockets []int // indexes of rows of sockets that were chosen, or of reasons to choose them
	nodes   int   // most nodes of one communicator; 0 if they are not in the log

	libfabric int    // index of the row of libfabric's network; -1 if there is none
	provider  string // provider of libfabric; empty if it is not in the log
}

func newNCCLLog(s *sink) parser { return &ncclLog{sink: s, seen: map[string]bool{}, libfabric: -1} }

// text reads the messages of a line: interleaved writers may put several into one.
func (p *ncclLog) text(l line) {
	switch {
	case rcclBareVersion.MatchString(l.text): // with NCCL_DEBUG=VERSION, and until 2.22 always
		p.version(l, l.text[strings.Index(l.text, "RCCL version "):])
		return
	case !has(l.text, "NCCL ", "[FATAL ERROR]: "):
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
		switch {
		case at[2] < 0: // RCCL's FATAL ERROR
			p.fatal(l, text)
		case l.text[at[2]:at[3]] == "WARN" && !ncclnet.Success(text):
			p.choice(p.row(l, "warning: "+text, "", ncclWarning(text)...))
		}
		p.message(l, text)
	}
}

// version adds the version of RCCL, without those of HIP and ROCm in the lines below.
func (p *ncclLog) version(l line, text string) {
	m := rcclVersion.FindStringSubmatch(strings.TrimSpace(text))
	if m != nil && p.row(l, "library RCCL "+m[1], "") >= 0 {
		p.versions++
	}
}

// fatal reports an error that ends the job, once: every rank prints it.
func (p *ncclLog) fatal(l line, text string) {
	if key := "fatal\x00" + text; !p.seen[key] && len(p.seen) < maxRows {
		p.seen[key] = true
		p.fail(l.number, "nccl failed: %s", text)
	}
}

func ncclWarning(text string) []string {
	if strings.Contains(text, "No device found") || ncclnet.NoVerbs(text) {
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
		p.choice(p.row(l, "network IB: no device found", "", ncclSockets))
	case strings.HasPrefix(text, "NET/Socket : Using "):
		for _, m := range ncclSocket.FindAllStringSubmatch(text, -1) {
			p.row(l, "network Socket "+m[1], "")
		}
	case strings.HasPrefix(text, "Using network "):
		p.network(l, text[len("Using network "):])
	case strings.HasPrefix(text, "NET/OFI "):
		p.ofi(l, text)
	case ncclnet.NoVerbs(text):
		p.choice(p.row(l, "libibverbs is missing in the image", "", ncclSockets))
	case strings.HasPrefix(text, "comm 0x"):
		if m := ncclNodes.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			p.nodes = max(p.nodes, n)
		}
	case strings.Contains(text, " speed change detected: "):
		if device, from, to, slower := ncclnet.Slower(text); slower {
			p.row(l, "link slower", device, "the link became slower: "+megabits(from)+" → "+megabits(to))
		}
	case strings.HasPrefix(text, "RCCL version "):
		p.version(l, text)
	case strings.HasPrefix(text, "GDRDMA not enabled"):
		p.row(l, "peer memory of the GPUs not available", "")
	case strings.HasPrefix(text, "DMA_BUF Support Enabled"):
		p.row(l, "DMA-BUF available", "")
	case has(text, "Dmabuf feature disabled", "DMA_BUF_SUPPORT Failed"):
		p.row(l, "DMA-BUF not available: "+text, "")
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
	case strings.HasPrefix(text, "GPU Direct RDMA "): // format until 2.27
		if m := ncclGDROld.FindStringSubmatch(text); m != nil {
			p.row(l, "GPUDirect RDMA "+strings.ToLower(m[1])+", "+m[2], "")
		}
	case strings.HasPrefix(text, "Channel "), strings.HasPrefix(text, "CollNet "):
		if m := ncclVia.FindStringSubmatch(text); m != nil {
			p.row(l, "channels via "+m[1], "", p.marks(strings.Split(m[1], "/")[1])...)
		}
	}
}

// network adds the chosen network. The provider of libfabric may follow later.
func (p *ncclLog) network(l line, name string) {
	i := p.row(l, "network "+name, "", p.marks(name)...)
	p.choice(i)
	if i >= 0 && ncclnet.Of(name, "efa") == ncclnet.RDMA && ncclnet.Of(name, "") == ncclnet.Unknown {
		p.libfabric = i
	}
}

// choice keeps the index of a row whose mark does not apply within one node.
func (p *ncclLog) choice(i int) {
	if i >= 0 && slices.Contains(p.rows[i].Marks, ncclSockets) {
		p.sockets = append(p.sockets, i)
	}
}

// marks returns the marks of a network, which depend on what carries its data.
func (p *ncclLog) marks(network string) []string {
	switch ncclnet.Of(network, p.provider) {
	case ncclnet.Sockets:
		return []string{ncclSockets}
	case ncclnet.Unknown:
		return []string{"unknown whether this network uses RDMA: " + network}
	}
	return nil
}

// ofi reads the provider of libfabric, which decides what carries the data.
func (p *ncclLog) ofi(l line, text string) {
	if strings.HasPrefix(text, "NET/OFI No eligible providers") {
		p.row(l, "libfabric has no provider for the adapters", "", ncclSockets)
	}
	provider := ncclnet.Provider(text)
	if provider == "" {
		return
	}
	p.provider = provider
	p.row(l, "libfabric provider "+provider, "", p.marks("Libfabric")...)
	if p.libfabric >= 0 {
		p.rows[p.libfabric].Marks = p.marks("Libfabric")
	}
}

// megabits converts a rate of NCCL to Gb/s.
func megabits(text string) string {
	v, _ := strconv.ParseFloat(text, 64) // digits
	return grid.GigabitsPerSecond(v * 1e6 / 8)
}

// row adds a message once: most are printed by every rank.
func (p *ncclLog) row(l line, test, rail string, marks ...string) (index int) {
	if key := test + "\x00" + rail; !p.seen[key] && len(p.seen) < maxRows {
		p.seen[key] = true
		return p.add(Result{Tool: "nccl", Test: test, Rail: rail, Line: l.number, Marks: marks})
	}
	return -1
}

func (p *ncclLog) end() {
	if p.nodes == 1 {
		for _, i := range p.sockets {
			p.rows[i].Marks = slices.DeleteFunc(p.rows[i].Marks, func(m string) bool { return m == ncclSockets })
		}
	}
	if p.first > 0 && len(p.rows) == p.versions {
		p.fail(p.first, "nccl: the log says nothing of the network; run with NCCL_DEBUG=INFO")
	}
}
