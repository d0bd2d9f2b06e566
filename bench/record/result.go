package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

var errWentBack = errors.New("its byte counter went back: the device was reset or replaced")

var errRestarted = errors.New("it was started again meanwhile")

// result returns the traffic of a rail from the first reading to the last.
func (r *Recorder) result(w *watched) Rail {
	out := Rail{Rail: w.rail.Name, Device: w.rail.Device, Netdev: w.rail.Netdev, Role: w.rail.Role, Pairs: w.pairs,
		Series: append([]Point{}, w.series...), group: w.group}
	if w.capacity > 0 {
		out.LineRate = new(w.capacity)
	}
	if w.broken != nil {
		r.note("rail "+w.rail.Name, w.broken)
		out.broken = true
		return out
	}
	byTCP := w.shared && w.byTCP(r.o.QueuePairs != nil)
	tcp, known := int64(0), !w.shared || byTCP
	for d, to := range map[int]*Direction{rail.Transmit: &out.Transmit, rail.Receive: &out.Receive} {
		wire := int64(w.now[d] - w.first[d])
		now, err := w.port.Packets(d)
		packets, counted := int64(now-w.packets[d]), w.counted[d] && err == nil && now >= w.packets[d]
		switch bytes, err := r.interfaceBytes(w, d); {
		case byTCP:
			if counted {
				wire = max(wire-w.longer(headerTCP)*packets, 0)
			}
			tcp += wire
			to.Wire, to.Payload = new(int64(0)), new(int64(0))
			continue
		case !w.shared && err == nil && bytes >= w.netdev[d]:
			tcp += int64(bytes - w.netdev[d])
		case !w.shared:
			known, out.noTCP = false, true
		}
		to.Wire, to.Peak = &wire, w.peak[d]
		if counted {
			to.Packets, to.Payload = &packets, new(max(wire-w.header()*packets, 0))
		}
	}
	if known {
		out.TCP = &tcp
	}
	return out
}

// header returns the bytes per packet that the counters include beside the payload.
func (w *watched) header() int64 {
	if w.rail.LinkLayer == "InfiniBand" {
		return headerIB
	}
	return w.longer(headerRDMA)
}

// longer returns the header size for the rail's IP version, given the one for IPv4.
func (w *watched) longer(header int64) int64 {
	if w.ipv6 {
		return header + longerIPv6
	}
	return header
}

// Thresholds of the verdict.
const (
	minBytes = 1 << 20 // bytes below which a rail carried nothing relevant
	idlePart = 0.02    // share of the best rail's bytes below which a rail was idle
	tcpPart  = 0.5     // share of all bytes above which the job used TCP
)

// judge sets the verdict. It considers the readable rails of each role in which some rail carried data.
func (r *Record) judge() {
	var loads []rail.Load
	var all, tcp, best int64
	var broken []string
	for _, one := range r.Rails {
		all, best = all+one.carried(), max(best, one.carried())
		if one.TCP != nil {
			tcp += *one.TCP
		}
		if one.broken {
			broken = append(broken, one.Rail)
		}
	}
	carries := func(one Rail) bool {
		n := one.carried()
		return n >= minBytes && float64(n) >= idlePart*float64(best)
	}
	var used, idle []string
	for _, one := range r.Rails {
		role := slices.ContainsFunc(r.Rails, func(o Rail) bool { return o.Role == one.Role && carries(o) })
		switch {
		case one.broken || !role:
			continue
		case carries(one):
			used = append(used, one.Rail)
		default:
			idle = append(idle, one.Rail)
		}
		load := rail.Load{Rate: float64(one.carried()), Group: one.group}
		if one.LineRate != nil {
			load.Capacity = *one.LineRate
		}
		loads = append(loads, load)
	}
	if imbalance, known := rail.Imbalance(loads); known && all >= minBytes {
		r.Imbalance = &imbalance
	}
	r.Verdict, r.Good = r.sentence(all, tcp, used, idle)
	if len(broken) > 0 {
		r.Verdict, r.Good = names(broken)+" could not be read; of the others, "+r.Verdict, false
	}
}

// names formats rails for a sentence.
func names(list []string) string {
	if len(list) == 1 {
		return "rail " + list[0]
	}
	return "rails " + strings.Join(list, ", ")
}

func (r *Record) sentence(all, tcp int64, used, idle []string) (string, bool) {
	judged := len(used) + len(idle)
	var uncounted []string
	for _, one := range r.Rails {
		if one.noTCP {
			uncounted = append(uncounted, one.Rail)
		}
	}
	mean := func(bytes int64) string {
		return grid.Gigabits(float64(bytes)/max(r.Seconds, 1e-3)) + " Gb/s on average, sent and received"
	}
	switch {
	case len(r.Rails) == 0:
		return "this node has no rails to observe", false
	case all < minBytes && tcp >= minBytes:
		return fmt.Sprintf("nothing went by RDMA: TCP carried %s over the rails' interfaces, %s", units.Mebibytes(tcp),
			mean(tcp)), false
	case all < minBytes && len(uncounted) > 0:
		return fmt.Sprintf("nothing went by RDMA, and what TCP carried over %s cannot be counted: the command used "+
			"TCP, other interfaces, or did not communicate", names(uncounted)), false
	case all < minBytes:
		return "the rails carried nothing: the command used other interfaces, or did not communicate", false
	case float64(tcp) > tcpPart*float64(all+tcp):
		return fmt.Sprintf("most went by TCP: %s, and %s by RDMA", units.Mebibytes(tcp), units.Mebibytes(all)), false
	case len(used) == 1 && judged > 1:
		return fmt.Sprintf("one of %d rails carried everything: %s, %s; %s carried nothing", judged, names(used),
			mean(all), names(idle)), false
	case len(idle) > 0:
		return fmt.Sprintf("%d of %d rails carried %s; %s carried nothing", len(used), judged, mean(all),
			names(idle)), false
	case r.Imbalance != nil && *r.Imbalance > rail.ImbalancedAbove:
		return fmt.Sprintf("%s carried %s, unevenly: the slowest had %s of its share",
			terminal.Count(len(used), "rail"), mean(all), terminal.Percent(1-*r.Imbalance)), false
	case judged > 1:
		return fmt.Sprintf("%d rails carried %s, evenly", len(used), mean(all)), true
	}
	return names(used) + " carried " + mean(all), true
}
