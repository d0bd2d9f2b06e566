package probe

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
	"github.com/railscope/railscope/probe/internal/worker"
)

// The control channel: HTTP with JSON between two railscopes. Messages are checked here before anything else reads
// them. Later versions add fields: an unknown field is ignored, and a field that version 2 did not have is optional.
//
//	POST   /v2/hello               challengeRequest → challengeReply, the only answer to strangers. With a token,
//	                               each connection begins with it, and all other messages on it are proved.
//	POST   /v2/prove               {} → {}: both ends prove the token
//	GET    /v2/node                → hello
//	GET    /v2/facts               → NodeOptions.Facts: JSON that the probe does not read
//	POST   /v2/ring                ringRequest → ringReply, when the node is connected to its successor
//	POST   /v2/ring/ID/start       → ringResult, when the burst has ended
//	DELETE /v2/ring/ID             → {}
//	POST   /v2/lease               leaseRequest → leaseEvent, one per leaseLine: the grant, and how it ended
//	                               The lease lasts as long as this answer does, and is renewed by every other request.
//	POST   /v2/lease/ID/open       openRequest → openReply
//	POST   /v2/lease/ID/verify     worker.VerifyArgs → worker.Verified
//	POST   /v2/lease/ID/renew      → {}
//	DELETE /v2/lease/ID            released → {}
const (
	pathHello = "/v2/hello"
	pathProve = "/v2/prove"
	pathNode  = "/v2/node"
	pathFacts = "/v2/facts"
	pathLease = "/v2/lease"
	pathRing  = "/v2/ring"

	pathHelloV1 = "/v1/hello" // identifies a railscope of protocol 1
)

// Limits on what a peer may send.
const (
	maxBody      = 1 << 20 // bytes of one message
	maxText      = 256     // bytes of a name or version
	maxDetail    = 1024    // bytes of a sentence
	maxAddresses = 256
	maxTTL       = time.Minute
	maxWritten   = 1 << 50 // bytes over a rail in one burst
	minPort      = 1024    // of a transfer over TCP: system services are below
)

// hello is what a node reports about itself.
type hello struct {
	Node      string      `json:"node"`
	Instance  string      `json:"instance"` // random, of the process
	Versions  versions    `json:"versions"`
	Rails     []helloRail `json:"rails"`
	Addresses []address   `json:"addresses"` // of all its interfaces

	Missing []helloMissing `json:"missing"` // rails that it had; nil: it does not know
	Flows   bool           `json:"flows"`   // it opens several flows over a rail, and lets them read
}

// versions are those of the components that should be similar on two nodes.
type versions struct {
	Railscope string `json:"railscope"`
	Kernel    string `json:"kernel"`
	RDMACore  string `json:"rdma_core"` // empty: no libibverbs, or not known
}

// helloRail is one of its rails.
type helloRail struct {
	Name      string         `json:"name"`
	Device    string         `json:"device"`
	Port      int            `json:"port"`
	Netdev    string         `json:"netdev"`
	State     string         `json:"state"` // of the kernel: "4: ACTIVE"
	Active    bool           `json:"active"`
	Rate      float64        `json:"rate"`               // bytes per second; 0 unknown
	Capacity  float64        `json:"capacity"`           // bytes per second; 0 unknown
	Expected  float64        `json:"expected,omitempty"` // configured or the best seen, bytes per second; 0: neither
	NetdevMTU int            `json:"netdev_mtu"`
	MTU       int            `json:"mtu"`            // of RoCE, from the netdev's; 0 unknown
	GID       netip.Addr     `json:"gid"`            // chosen without a peer
	Role      string         `json:"role,omitempty"` // see [rail.Rail]; empty: an older railscope
	Firmware  string         `json:"firmware"`
	Driver    string         `json:"driver"`
	Software  bool           `json:"software,omitempty"` // rxe, siw
	Members   int            `json:"members,omitempty"`  // of the bond that its device is
	Prefixes  []netip.Prefix `json:"prefixes"`           // addresses of its interface, with their subnets
	GIDs      []helloGID     `json:"gids,omitempty"`     // usable ones of an Ethernet port; nil: not reported
}

// address is one address of one interface.
type address struct {
	Netdev string       `json:"netdev"`
	Prefix netip.Prefix `json:"prefix"`
}

// leaseRequest asks for the peer's only lease.
type leaseRequest struct {
	Node     string `json:"node"`
	Instance string `json:"instance"`
	// Time of each of the target's rails that the round takes at most, at full load.
	RailSeconds float64 `json:"rail_seconds"`
}

// leaseLine is one line of the answer.
type leaseLine struct {
	Event json.RawMessage `json:"event"`           // leaseEvent
	Proof string          `json:"proof,omitempty"` // of the event and its place, in hexadecimal; with a token
}

// leaseEvent is the content of a line.
type leaseEvent struct {
	Grant *grant           `json:"grant,omitempty"`
	End   *failure.Failure `json:"end,omitempty"` // denied, or ended before it was released
}

// grant is a lease.
type grant struct {
	ID string `json:"id"`
	// 32 bytes, for the lease's TCP port. With a token both ends derive it
	Key []byte        `json:"key,omitempty"`
	TTL time.Duration `json:"ttl"` // after the last request
}

// openRequest asks for scratch memory and its ends of the rails.
type openRequest struct {
	Transport    string     `json:"transport"` // rdma or tcp
	Buffer       int64      `json:"buffer"`    // bytes, for each rail
	Depth        int        `json:"depth"`
	QueuePairs   int        `json:"queue_pairs"` // queue pairs per rail
	TrafficClass uint8      `json:"traffic_class"`
	ServiceLevel uint8      `json:"service_level"`
	PKey         uint16     `json:"pkey,omitempty"`   // of InfiniBand; 0: the first of each port
	Seed         uint64     `json:"seed,omitempty"`   // of what the target sends, where the asker reads
	Memory       string     `json:"memory,omitempty"` // of its GPUs; empty: of the host
	Rails        []openRail `json:"rails"`
}

// openRail pairs one of the target's rails with an end of the asker's.
type openRail struct {
	Rail     string         `json:"rail"` // the target's name for it
	Op       worker.Op      `json:"op,omitempty"`
	Flow     int            `json:"flow,omitempty"` // number of its first flow label: a rail may have several flows
	Remote   worker.End     `json:"remote"`         // the asker's end; without queue pairs for TCP
	Prefixes []netip.Prefix `json:"prefixes"`       // addresses of the asker's interface
}

// name is that of the flow in the target's session.
func (o openRail) name() string { return worker.FlowName(o.Rail, o.Op, o.Flow) }

// openReply is the target's ends.
type openReply struct {
	Ends    []worker.End `json:"ends"` // in the order of the request
	TCPPort uint16       `json:"tcp_port"`
}

// released reports what a lease was used for.
type released struct {
	Bytes int64 `json:"bytes"`
}

// check refuses a hello that no railscope sends.
func (h *hello) check() error {
	if len(h.Rails) > worker.MaxRails || len(h.Addresses) > maxAddresses || len(h.Missing) > worker.MaxRails {
		return fmt.Errorf("%d rails, %d missing ones and %d addresses: the limits are %d, %[4]d and %[5]d", len(h.Rails),
			len(h.Missing), len(h.Addresses), worker.MaxRails, maxAddresses)
	}
	texts := []string{h.Node, h.Instance, h.Versions.Railscope, h.Versions.Kernel, h.Versions.RDMACore}
	seen := map[string]bool{}
	for _, r := range h.Rails {
		texts = append(texts, r.Name, r.Device, r.Netdev, r.State, r.Role, r.Firmware, r.Driver)
		switch {
		case r.Name == "" || seen[r.Name]:
			return fmt.Errorf("a rail without a unique name: %.40q", r.Name)
		case r.Port < 1 || r.Port > 255:
			return fmt.Errorf("port %d of rail %.40q", r.Port, r.Name)
		case !(r.Rate >= 0 && r.Rate < 1e15) || !(r.Capacity >= 0 && r.Capacity < 1e15) ||
			!(r.Expected >= 0 && r.Expected < 1e15):
			return fmt.Errorf("rate %v, capacity %v, expected %v of rail %.40q", r.Rate, r.Capacity, r.Expected, r.Name)
		case r.MTU < 0 || r.MTU > 1<<20 || r.NetdevMTU < 0 || r.NetdevMTU > 1<<20:
			return fmt.Errorf("MTU %d, of its interface %d, of rail %.40q", r.MTU, r.NetdevMTU, r.Name)
		case r.Members < 0 || r.Members > worker.MaxRails:
			return fmt.Errorf("%d members of rail %.40q", r.Members, r.Name)
		case len(r.Prefixes) > maxAddresses || len(r.GIDs) > maxAddresses:
			return fmt.Errorf("%d addresses and %d GIDs of rail %.40q", len(r.Prefixes), len(r.GIDs), r.Name)
		}
		for _, g := range r.GIDs {
			if texts = append(texts, g.Type, g.Netdev); g.Addr.Zone() != "" {
				return fmt.Errorf("a GID with the zone %.40q of rail %.40q", g.Addr.Zone(), r.Name)
			}
		}
		seen[r.Name] = true
	}
	for _, a := range h.Addresses {
		texts = append(texts, a.Netdev)
	}
	for _, m := range h.Missing {
		texts = append(texts, m.Name, m.Device)
	}
	if h.Node == "" || h.Instance == "" {
		return fmt.Errorf("a node without a name")
	}
	return checkTexts(texts...)
}

func (l *leaseRequest) check() error {
	if !(l.RailSeconds > 0 && l.RailSeconds <= MaxTimeout.Seconds()) || l.Node == "" || l.Instance == "" {
		return fmt.Errorf("a lease of %v seconds for %.40q", l.RailSeconds, l.Node)
	}
	return checkTexts(l.Node, l.Instance)
}

func (o *openRequest) check() error {
	switch {
	case o.Transport != worker.RDMA && o.Transport != worker.TCP:
		return fmt.Errorf("transport %.40q", o.Transport)
	case o.Memory != "" && !slices.Contains(worker.Memories(), o.Memory):
		return fmt.Errorf("memory %.40q", o.Memory)
	case o.Depth < 1 || o.Depth > worker.MaxDepth || o.QueuePairs < 1 || o.QueuePairs > worker.MaxQueuePairs:
		return fmt.Errorf("%d writes in flight over %d queue pairs", o.Depth, o.QueuePairs)
	case o.ServiceLevel > 15:
		return fmt.Errorf("service level %d: must be 0 to 15", o.ServiceLevel)
	case len(o.Rails) == 0 || len(o.Rails) > worker.MaxRails:
		return fmt.Errorf("%d rails: must be 1 to %d", len(o.Rails), worker.MaxRails)
	case o.Buffer < transfer.Page || o.Buffer > int64(worker.MaxMemory/len(o.Rails)):
		return fmt.Errorf("%d bytes for each of %d rails: must be %d to %d", o.Buffer, len(o.Rails), transfer.Page,
			worker.MaxMemory/len(o.Rails))
	}
	seen := map[string]bool{}
	for _, r := range o.Rails {
		switch {
		case seen[r.name()]:
			return fmt.Errorf("rail %.40q twice", r.name())
		case r.Flow < 0 || r.Flow > worker.MaxFlow || r.Op != "" && r.Op != worker.Write && r.Op != worker.Read:
			return fmt.Errorf("flow %d of operation %.20q over rail %.40q", r.Flow, r.Op, r.Rail)
		}
		seen[r.name()] = true
		if err := checkEnd(r.Remote, o.QueuePairs); err != nil {
			return err
		}
		if len(r.Prefixes) > maxAddresses {
			return fmt.Errorf("%d addresses of rail %.40q", len(r.Prefixes), r.Rail)
		}
		if err := checkTexts(r.Rail); err != nil {
			return err
		}
	}
	return nil
}

// checkVerify refuses a request that would cost more than comparing the memory once.
func checkVerify(v *worker.VerifyArgs) error {
	if len(v.Rails)+len(v.Read) > worker.MaxRails || len(v.Stop) > worker.MaxRails {
		return fmt.Errorf("%d rails to verify, %d that were read and %d to stop: the limit is %d", len(v.Rails), len(v.Read),
			len(v.Stop), worker.MaxRails)
	}
	seen := map[string]bool{}
	for _, r := range slices.Concat(v.Rails, v.Read) {
		if seen[r.Rail] || len(r.Writes) > worker.MaxQueuePairs {
			return fmt.Errorf("rail %.40q twice, or with %d queue pairs", r.Rail, len(r.Writes))
		}
		left := int64(maxWritten)
		for _, n := range r.Writes {
			if n < 0 || r.Chunk < 0 || r.Chunk > 0 && n > left/r.Chunk {
				return fmt.Errorf("%d writes of %d bytes over rail %.40q", n, r.Chunk, r.Rail)
			}
			left -= n * r.Chunk
		}
		seen[r.Rail] = true
	}
	return nil
}

// check refuses an answer that does not match the request.
func (o *openReply) check(req *openRequest) error {
	if len(o.Ends) != len(req.Rails) {
		return fmt.Errorf("%d ends for %d rails", len(o.Ends), len(req.Rails))
	}
	for i := range o.Ends {
		if err := checkEnd(o.Ends[i], req.QueuePairs); err != nil {
			return err
		}
		size := req.Buffer
		if req.Rails[i].Op == worker.Read {
			size = transfer.SourceLen
		}
		if f := o.Ends[i].Failure; f == nil && req.Transport == worker.RDMA &&
			(len(o.Ends[i].QPNs) == 0 || o.Ends[i].Size != size) {
			return fmt.Errorf("neither queue pairs with %d bytes of memory nor a failure for rail %.40q", size,
				req.Rails[i].name())
		} else if f != nil {
			sanitize(f, failure.StageConnect)
		}
	}
	if req.Transport == worker.TCP && o.TCPPort < minPort {
		return fmt.Errorf("TCP port %d: must be at least %d", o.TCPPort, minPort)
	}
	return nil
}

func checkEnd(e worker.End, qps int) error {
	switch {
	case len(e.QPNs) > qps || len(e.PSNs) != len(e.QPNs):
		return fmt.Errorf("%d queue pairs and %d sequence numbers instead of %d", len(e.QPNs), len(e.PSNs), qps)
	case e.ActiveMTU < 0 || e.ActiveMTU > 1<<20 || e.MaxMTU < 0 || e.MaxMTU > 1<<20:
		return fmt.Errorf("MTU %d of at most %d", e.ActiveMTU, e.MaxMTU)
	case e.AckDelay > 31: // 5 bits
		return fmt.Errorf("an acknowledgement delay of 4.096 µs × 2^%d", e.AckDelay)
	}
	return checkTexts(e.Name)
}

func checkTexts(texts ...string) error {
	for _, s := range texts {
		if len(s) > maxText || !printable(s) {
			return fmt.Errorf("a name that is too long or not printable: %.40q", s)
		}
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// sanitize limits a failure that a peer reports, which becomes labels and messages, and names it as the peer's. stage
// replaces an unknown one.
func sanitize(f *failure.Failure, stage failure.Stage) {
	f.Detail = terminal.Plain(f.Detail)
	if len(f.Detail) > maxDetail {
		f.Detail = strings.ToValidUTF8(f.Detail[:maxDetail], "") + "…"
	}
	f.RetryAfter = min(max(f.RetryAfter, 0), time.Hour)
	if !f.Stage.Known() {
		f.Stage = stage
	}
	if !f.Reason.Known() {
		f.Reason = failure.Other
	}
	f.Reason = ofPeer(f.Reason)
	if len(f.Rail) > maxText || !printable(f.Rail) {
		f.Rail = ""
	}
}
