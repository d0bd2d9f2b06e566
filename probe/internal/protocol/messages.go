// Package protocol has the messages between two nodes of the probe, their paths and bounds.
package protocol

import (
	"cmp"
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

// MaxHelloGIDs bounds the GIDs that a node reports for each rail. Usable ones come first.
const MaxHelloGIDs = 16

// HelloGID is one usable entry of a rail's GID table.
type HelloGID struct {
	Addr   netip.Addr `json:"addr"`
	Type   string     `json:"type"`
	Netdev string     `json:"netdev"`
	Own    bool       `json:"own"` // the interface is the rail's own
}

// ofPeer turns a reason that concerns this node's worker or GID into the one that concerns the peer's.
func ofPeer(reason failure.Reason) failure.Reason {
	switch reason {
	case failure.WorkerCrashed, failure.WorkerTimeout, failure.WorkerBackoff:
		return failure.PeerWorker
	case failure.NoGID, failure.GIDChanged:
		return failure.PeerGID
	}
	return reason
}

// NetdevName returns the interface of the GID for people.
func (g *HelloGID) NetdevName() string { return cmp.Or(g.Netdev, "no interface") }

// HelloMissing is a rail that a node had and has lost.
type HelloMissing struct {
	Name   string `json:"name"`
	Device string `json:"device"`
}

// The control channel: HTTP with JSON over TLS between two railscopes. Messages are checked here before anything else
// reads them. Later versions add fields: an unknown field is ignored, and a field that version 2 did not have is
// optional. The paths are those of protocols 2 to 4.
//
//	POST   /v2/hello               ProofRequest → ProofReply: both ends prove the token. Each connection begins with
//	                               it. The only request that is answered in the clear: with the version alone.
//	GET    /v2/node                → Hello
//	GET    /v2/facts               → NodeOptions.Facts: JSON that the probe does not read
//	POST   /v2/ring                RingRequest → RingReply, when the node is connected to its successor
//	POST   /v2/ring/ID/start       → RingResult, when the burst has ended
//	DELETE /v2/ring/ID             → {}
//	POST   /v2/gate                GateRequest → result.Visit, when the visit has ended
//	PUT    /v2/ring/reservation/ID → {}: until it is asked again or ended, the node is the ring's or gate's
//	DELETE /v2/ring/reservation/ID → {}
//	POST   /v2/lease               LeaseRequest → LeaseEvent, one per line: the grant, and how it ended
//	                               The lease lasts as long as this answer does, and is renewed by every other request.
//	POST   /v2/lease/ID/open       OpenRequest → OpenReply
//	POST   /v2/lease/ID/claim      Quiet → Quiet: the peer's slot, for one burst over rails that are quiet there
//	POST   /v2/lease/ID/verify     worker.VerifyArgs → worker.Verified
//	POST   /v2/lease/ID/renew      → {}
//	DELETE /v2/lease/ID            Released → {}
const (
	PathHello = "/v2/hello"
	PathNode  = "/v2/node"
	PathFacts = "/v2/facts"
	PathLease = "/v2/lease"
	PathRing  = "/v2/ring"
	PathGate  = "/v2/gate"

	PathReserve = PathRing + "/reservation"

	PathHelloV1 = "/v1/hello" // identifies a railscope of protocol 1
)

// Limits of what a peer may send.
const (
	MaxBody      = 1 << 20 // bytes of one message
	KeySize      = 32      // bytes of the key of a lease's TCP port
	MaxText      = 256     // bytes of a name or version
	MaxDetail    = 1024    // bytes of a sentence
	MaxAddresses = 256
	MaxTTL       = time.Minute
	MaxWritten   = 1 << 50 // bytes over a rail in one burst
	maxGrant     = 3600    // seconds of rail time, of each hour
	minPort      = 1024    // least port of a transfer over TCP: lower ports are for system services
)

// Hello is what a node reports about itself.
type Hello struct {
	Node      string      `json:"node"`
	Instance  string      `json:"instance"` // random ID of the process
	Versions  Versions    `json:"versions"`
	Rails     []HelloRail `json:"rails"`
	Addresses []Address   `json:"addresses"` // addresses of all its interfaces

	Missing []HelloMissing `json:"missing"` // rails that it has lost; nil: unknown
	Flows   bool           `json:"flows"`   // it opens several flows over a rail, and supports reads
	Parts   bool           `json:"parts"`   // it grants leases for one part of a round: see [Part]
	Grants  *Grants        `json:"grants,omitempty"`
}

// Grants is the rail time that a node grants to askers, in seconds.
type Grants struct {
	Lease float64 `json:"lease_seconds"` // the most of one lease
	Left  float64 `json:"left_seconds"`  // left of its budget now
}

// Versions are the versions of the components that should be similar on two nodes.
type Versions struct {
	Railscope string `json:"railscope"`
	Kernel    string `json:"kernel"`
	RDMACore  string `json:"rdma_core"` // version; empty: no libibverbs, or unknown
}

// HelloRail is one rail of the node.
type HelloRail struct {
	Name      string         `json:"name"`
	Device    string         `json:"device"`
	Port      int            `json:"port"`
	Netdev    string         `json:"netdev"`
	State     string         `json:"state"` // text of the kernel, such as "4: ACTIVE"
	Active    bool           `json:"active"`
	Rate      float64        `json:"rate"`               // bytes per second; 0 unknown
	Capacity  float64        `json:"capacity"`           // bytes per second; 0 unknown
	Expected  float64        `json:"expected,omitempty"` // configured or the best seen, bytes per second; 0: neither
	NetdevMTU int            `json:"netdev_mtu"`
	MTU       int            `json:"mtu"`            // RoCE MTU, derived from the netdev's; 0: unknown
	GID       netip.Addr     `json:"gid"`            // GID chosen without a peer
	Role      string         `json:"role,omitempty"` // see [rail.Rail]; empty: an older railscope
	Firmware  string         `json:"firmware"`
	Driver    string         `json:"driver"`
	Software  bool           `json:"software,omitempty"` // rxe, siw
	Members   int            `json:"members,omitempty"`  // members of the bond that its device represents
	Prefixes  []netip.Prefix `json:"prefixes"`           // addresses of its interface, with their subnets
	GIDs      []HelloGID     `json:"gids,omitempty"`     // usable GIDs of an Ethernet port; nil: not reported
}

// Address is one address of one interface.
type Address struct {
	Netdev string       `json:"netdev"`
	Prefix netip.Prefix `json:"prefix"`
}

// OpenRequest asks the target for scratch memory and its ends of the rails.
type OpenRequest struct {
	Transport    string     `json:"transport"` // rdma or tcp
	Buffer       int64      `json:"buffer"`    // bytes for each rail
	Depth        int        `json:"depth"`
	QueuePairs   int        `json:"queue_pairs"` // queue pairs per rail
	TrafficClass uint8      `json:"traffic_class"`
	ServiceLevel uint8      `json:"service_level"`
	PKey         uint16     `json:"pkey,omitempty"`   // InfiniBand partition key; 0: the first of each port
	Seed         uint64     `json:"seed,omitempty"`   // seed of the pattern that the target sends when the asker reads
	Memory       string     `json:"memory,omitempty"` // kind of GPU memory; empty: host memory
	Rails        []OpenRail `json:"rails"`
}

// OpenRail pairs a rail of the target with an end of the asker.
type OpenRail struct {
	Rail     string         `json:"rail"` // name at the target
	Op       worker.Op      `json:"op,omitempty"`
	Flow     int            `json:"flow,omitempty"` // index of its first flow label: a rail may have several flows
	Remote   worker.End     `json:"remote"`         // end of the asker; without queue pairs for TCP
	Prefixes []netip.Prefix `json:"prefixes"`       // addresses of the asker's interface
}

// Name returns the flow's name in the target's session.
func (o OpenRail) Name() string { return worker.FlowName(o.Rail, o.Op, o.Flow) }

// OpenReply returns the target's ends.
type OpenReply struct {
	Ends    []worker.End `json:"ends"` // ends in the order of the request
	TCPPort uint16       `json:"tcp_port"`
}

// Check returns an error for a hello that no railscope sends.
func (h *Hello) Check() error {
	if len(h.Rails) > worker.MaxRails || len(h.Addresses) > MaxAddresses || len(h.Missing) > worker.MaxRails {
		return fmt.Errorf("%d rails, %d missing ones and %d addresses: the limits are %d, %[4]d and %[5]d",
			len(h.Rails), len(h.Missing), len(h.Addresses), worker.MaxRails, MaxAddresses)
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
		case len(r.Prefixes) > MaxAddresses || len(r.GIDs) > MaxAddresses:
			return fmt.Errorf("%d addresses and %d GIDs of rail %.40q", len(r.Prefixes), len(r.GIDs), r.Name)
		}
		for _, g := range r.GIDs {
			texts = append(texts, g.Type, g.Netdev)
			if g.Addr.Zone() != "" {
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
	if g := h.Grants; g != nil && (!(g.Lease >= 0 && g.Lease <= maxGrant) || !(g.Left >= 0 && g.Left <= maxGrant)) {
		return fmt.Errorf("grants of %v s and %v s", g.Lease, g.Left)
	}
	if h.Node == "" || h.Instance == "" {
		return fmt.Errorf("a node without a name")
	}
	return CheckTexts(texts...)
}

// Check returns what is wrong with the message.
func (o *OpenRequest) Check() error {
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
		case seen[r.Name()]:
			return fmt.Errorf("rail %.40q twice", r.Name())
		case r.Flow < 0 || r.Flow > worker.MaxFlow || r.Op != "" && r.Op != worker.Write && r.Op != worker.Read:
			return fmt.Errorf("flow %d of operation %.20q over rail %.40q", r.Flow, r.Op, r.Rail)
		}
		seen[r.Name()] = true
		if err := CheckEnd(r.Remote, o.QueuePairs); err != nil {
			return err
		}
		if len(r.Prefixes) > MaxAddresses {
			return fmt.Errorf("%d addresses of rail %.40q", len(r.Prefixes), r.Rail)
		}
		if err := CheckTexts(r.Rail); err != nil {
			return err
		}
	}
	return nil
}

// CheckVerify rejects a request that would cost more than one comparison of the memory.
func CheckVerify(v *worker.VerifyArgs) error {
	if len(v.Rails)+len(v.Read) > worker.MaxRails || len(v.Stop) > worker.MaxRails {
		return fmt.Errorf("%d rails to verify, %d that were read and %d to stop: the limit is %d", len(v.Rails),
			len(v.Read), len(v.Stop), worker.MaxRails)
	}
	seen := map[string]bool{}
	for _, r := range slices.Concat(v.Rails, v.Read) {
		if seen[r.Rail] || len(r.Writes) > worker.MaxQueuePairs {
			return fmt.Errorf("rail %.40q twice, or with %d queue pairs", r.Rail, len(r.Writes))
		}
		left := int64(MaxWritten)
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

// Check returns an error for an answer that does not match the request.
func (o *OpenReply) Check(req *OpenRequest) error {
	if len(o.Ends) != len(req.Rails) {
		return fmt.Errorf("%d ends for %d rails", len(o.Ends), len(req.Rails))
	}
	for i := range o.Ends {
		if err := CheckEnd(o.Ends[i], req.QueuePairs); err != nil {
			return err
		}
		size := req.Buffer
		if req.Rails[i].Op == worker.Read {
			size = transfer.SourceLen
		}
		if f := o.Ends[i].Failure; f == nil && req.Transport == worker.RDMA &&
			(len(o.Ends[i].QPNs) == 0 || o.Ends[i].Size != size) {
			return fmt.Errorf("neither queue pairs with %d bytes of memory nor a failure for rail %.40q", size,
				req.Rails[i].Name())
		} else if f != nil {
			Sanitize(f, failure.StageConnect)
		}
	}
	if req.Transport == worker.TCP && o.TCPPort < minPort {
		return fmt.Errorf("TCP port %d: must be at least %d", o.TCPPort, minPort)
	}
	return nil
}

// CheckEnd returns what is wrong with one end of a flow that has this many queue pairs.
func CheckEnd(e worker.End, qps int) error {
	switch {
	case len(e.QPNs) > qps || len(e.PSNs) != len(e.QPNs):
		return fmt.Errorf("%d queue pairs and %d sequence numbers instead of %d", len(e.QPNs), len(e.PSNs), qps)
	case e.ActiveMTU < 0 || e.ActiveMTU > 1<<20 || e.MaxMTU < 0 || e.MaxMTU > 1<<20:
		return fmt.Errorf("MTU %d of at most %d", e.ActiveMTU, e.MaxMTU)
	case e.AckDelay > 31: // 5 bits
		return fmt.Errorf("an acknowledgement delay of 4.096 µs × 2^%d", e.AckDelay)
	}
	return CheckTexts(e.Name)
}

// CheckTexts returns an error for a text that is too long or cannot be printed.
func CheckTexts(texts ...string) error {
	for _, s := range texts {
		if len(s) > MaxText || !Printable(s) {
			return fmt.Errorf("a name that is too long or not printable: %.40q", s)
		}
	}
	return nil
}

// Printable reports whether a text has only printable characters.
func Printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Sanitize limits a failure that a peer reports, because it becomes labels and messages, and marks it as the
// peer's. stage replaces an unknown stage.
func Sanitize(f *failure.Failure, stage failure.Stage) {
	f.Detail = terminal.Plain(f.Detail)
	if len(f.Detail) > MaxDetail {
		f.Detail = strings.ToValidUTF8(f.Detail[:MaxDetail], "") + "…"
	}
	f.RetryAfter = min(max(f.RetryAfter, 0), time.Hour)
	if !f.Stage.Known() {
		f.Stage = stage
	}
	if !f.Reason.Known() {
		f.Reason = failure.Other
	}
	f.Reason = ofPeer(f.Reason)
	if len(f.Rail) > MaxText || !Printable(f.Rail) {
		f.Rail = ""
	}
}
