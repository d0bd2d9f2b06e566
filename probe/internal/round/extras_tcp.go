package round

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// pageStreams is the number of connections per rail over which pages are moved: that of the faster baseline on most
// networks.
const pageStreams = 4

func tcpTimeBytes(p Plan, e result.Extra, over carriers) int64 {
	return sumOf(e.Values) * int64(p.messageSamples()+warmups) * int64(len(over.tcp))
}

func tcpTimeBursts(_ Plan, e result.Extra, rails []string) []result.Measured {
	return perSize(e, rails, "")
}

// measureTCPTime measures the time of messages over TCP, from write to the acknowledgement by the target's process.
func measureTCPTime(ctx context.Context, r *Round, e result.Extra) error {
	flows := TCPFlows(r.Routes(), r.Flows)
	var loads []worker.Load
	for _, p := range flows {
		loads = append(loads, r.Plan.tcpLoad(p, 1, len(flows)))
	}
	if len(flows) == 0 {
		return failure.New(failure.StageExtra, failure.NoAddress, "no address of this node is in one subnet with one "+
			"of the peer's")
	}
	s := r.session.another(r.Plan, flows, &r.Res)
	broken, err := s.openTCP(ctx, loads, 1)
	if err != nil {
		return err
	}
	for _, size := range e.Values {
		m := result.Measured{Kind: result.TCPTime, Size: int64(size), TCP: &result.TCPResult{Streams: 1}}
		for _, p := range flows {
			if slices.Contains(broken, p.name()) {
				m.Flows = append(m.Flows,
					result.MeasuredFlow{Rail: p.Local.Name, Failure: failure.New(failure.StageConnect,
						failure.TCPBroken, "rail %s: no connection over TCP", p.Local.Name)})
				continue
			}
			l, err := s.worker.Current.Latency(ctx, worker.LatencyArgs{Rail: p.name(), Size: m.Size,
				N: r.Plan.messageSamples(), Limit: latencyTime})
			timed := result.MeasuredFlow{Rail: p.Local.Name, Latency: (*result.Latency)(nil).Add(l.Samples, nil)}
			timed.Failure = failure.As(failure.StageExtra, err)
			r.Res.Bytes += m.Size * int64(len(l.Samples))
			m.Flows = append(m.Flows, timed)
		}
		r.Res.Extras = append(r.Res.Extras, m)
		r.Tally.next()
	}
	return nil
}

// oneTCPBytes is 0 for a single rail, which has nothing to measure.
func oneTCPBytes(p Plan, _ result.Extra, over carriers) (most int64) {
	for i := range over.tcp {
		if len(over.tcp) > 1 {
			most = max(most, p.tcpBytes(over.tcp[i:i+1], 1))
		}
	}
	return most
}

// measureOneTCP measures one connection over the first rail alone. With a single rail, the baseline has that
// figure.
func measureOneTCP(ctx context.Context, r *Round, _ result.Extra) error {
	flows := r.usedRoutes()
	if len(flows) < 2 {
		return nil
	}
	rail := flows[0].route.Name
	res, err := r.overTCP(ctx, failure.StageBaseline, r.Plan, flows[:1], 1)
	if err == nil && res.BytesPerSecond <= 0 {
		err = tooFewWrites("rail " + rail)
	}
	r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.OneTCP, TCP: &res,
		Failure: failure.As(failure.StageExtra, err),
		Flows:   []result.MeasuredFlow{{Rail: rail}}})
	return nil
}

func tcpStreamsBytes(p Plan, e result.Extra, over carriers) (sum int64) {
	for _, streams := range e.Values {
		sum += p.tcpBytes(over.tcp, streams)
	}
	return sum
}

func tcpStreamsBursts(_ Plan, e result.Extra, _ []string) (list []result.Measured) {
	for _, streams := range e.Values {
		list = append(list, result.Measured{TCP: &result.TCPResult{Streams: streams}})
	}
	return list
}

// measureTCPStreams measures TCP over the rails that RDMA used, with other numbers of connections than the baselines.
func measureTCPStreams(ctx context.Context, r *Round, e result.Extra) error {
	for _, streams := range e.Values {
		res, err := r.overTCP(ctx, failure.StageBaseline, r.Plan, r.usedRoutes(), streams)
		if err == nil && res.BytesPerSecond <= 0 {
			err = tooFewWrites("the rails")
		}
		r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.TCPStreams, TCP: &res,
			Failure: failure.As(failure.StageExtra, err)})
		r.Tally.next()
	}
	return nil
}

func kvCacheBytes(p Plan, e result.Extra, over carriers) int64 {
	bursts, _ := p.messageBursts(e, over.rails)
	return over.latencyBytes() + 2*bursts + int64(len(e.Values))*p.tcpBytes(over.tcp, pageStreams)
}

func kvCacheBursts(_ Plan, e result.Extra, rails []string) (list []result.Measured) {
	for _, page := range e.Values {
		for _, n := range slices.Compact([]int{min(1, len(rails)), len(rails)}) {
			m := planned(rails[:n], result.Read)
			m.Size = int64(page)
			list = append(list, m)
		}
	}
	for _, page := range e.Values {
		list = append(list, result.Measured{Size: int64(page), TCP: &result.TCPResult{Streams: pageStreams}})
	}
	return list
}

// measureKVCache measures reads of KV cache pages, which lie apart in the peer's memory: over the first rail, over
// all at once, and over TCP for comparison.
func measureKVCache(ctx context.Context, r *Round, e result.Extra) error {
	flows, err := r.chosen(e)
	if err == nil {
		err = readPages(ctx, r, flows, e.Values)
	}
	if err != nil { // TCP does not need RDMA paths
		planned := r.Plan.Bursts(e, r.railsFor(e))
		planned = planned[:len(planned)-len(e.Values)]
		missed(&r.Res, result.KVCache, planned, r.Tally.Done-r.Tally.Ours, failure.As(failure.StageExtra, err))
		r.Tally.Done = r.Tally.Ours + len(planned)
	}
	return pagesOverTCP(ctx, r, e.Values)
}

func readPages(ctx context.Context, r *Round, over []*Flow, pages []int) error {
	flows := newFlows(over, result.Read)
	plan := r.Plan
	most := plan.Chunk(float64(slices.Max(pages)), int64(slices.Max(pages)))
	for _, page := range pages {
		plan.minMemory = max(plan.minMemory, int64(page)*plan.OfMessages(int64(page), most).slots(plan.QueuePairs))
	}
	s, err := openSizes(ctx, r, result.KVCache, flows, plan)
	if err != nil {
		return err
	}
	plan = s.Plan
	for _, page := range pages {
		s.Plan = plan.OfMessages(int64(page), most)
		for _, n := range slices.Compact([]int{1, len(flows)}) {
			m := result.Measured{Kind: result.KVCache, Size: int64(page)}
			if err := s.measure(ctx, m, flows[:n]); err != nil {
				return err
			}
			r.Tally.next()
		}
	}
	return nil
}

func pagesOverTCP(ctx context.Context, r *Round, pages []int) error {
	plan := r.Plan
	for _, page := range pages {
		plan.message = min(int64(page), maxTCPChunk)
		res, err := r.overTCP(ctx, failure.StageBaseline, plan, r.usedRoutes(), pageStreams)
		if err != nil {
			return err
		}
		m := result.Measured{Kind: result.KVCache, Size: int64(page), TCP: &res}
		if res.BytesPerSecond <= 0 {
			m.Failure = tooFewWrites("the rails")
		}
		r.Res.Extras = append(r.Res.Extras, m)
		r.Tally.next()
	}
	return nil
}

func bondBytes(p Plan, _ result.Extra, over carriers) (sum int64) {
	for _, b := range over.bonds {
		for _, streams := range BaselineStreams {
			sum += p.tcpBytes([]*Flow{b.flow()}, streams)
		}
	}
	return sum
}

// measureBond measures TCP over each bond of this node that shares a subnet with the peer, and what each of its
// members carried. Without a bond it does nothing.
func measureBond(ctx context.Context, r *Round, _ result.Extra) error {
	bonds := r.bonds()
	reached := slices.DeleteFunc(slices.Clone(bonds), func(b BondRoute) bool { return !b.Remote.IsValid() })
	if len(bonds) > 0 && len(reached) == 0 {
		return failure.New(failure.StageExtra, failure.NoAddress, "no bond of this node has an address in one subnet "+
			"with one of the peer's")
	}
	for _, b := range reached {
		for _, streams := range BaselineStreams {
			res, err := overBond(ctx, r, b, streams)
			if err == nil && res.BytesPerSecond <= 0 {
				err = tooFewWrites(b.netdev)
			}
			r.Res.Extras = append(r.Res.Extras, result.Measured{Kind: result.Bond, TCP: &res,
				Failure: failure.As(failure.StageExtra, err),
				Flows:   []result.MeasuredFlow{{Rail: b.netdev}}})
			r.Tally.next()
		}
	}
	return nil
}

// overBond runs a burst over a bond, between two readings of its members' counters.
func overBond(ctx context.Context, r *Round, b BondRoute, streams int) (result.TCPResult, error) {
	before, bytes := sentBy(r.Node, b.members), r.Res.Bytes
	res, err := r.overTCP(ctx, failure.StageBaseline, r.Plan, []*Flow{b.flow()}, streams)
	after := sentSettled(ctx, r.Node, b.members, before, r.Res.Bytes-bytes)
	res.Rails = nil
	for i, m := range b.members {
		carried := result.TCPRail{Rail: m}
		if before[i] >= 0 && after[i] >= before[i] {
			carried.Counted = new(after[i] - before[i])
		}
		res.Rails = append(res.Rails, carried)
	}
	return res, err
}

// sentSettled returns sentBy once the counters include the payload, or after a timeout: some drivers update them
// once per second.
func sentSettled(ctx context.Context, n *node.Node, netdevs []string, before []int64, payload int64) []int64 {
	for end := time.Now().Add(node.SettleTime); ; {
		now, sum := sentBy(n, netdevs), int64(0)
		for i := range now {
			sum += now[i] - before[i]
		}
		if sum >= payload || time.Now().After(end) {
			return now
		}
		select {
		case <-time.After(node.SettleTime / 10):
		case <-ctx.Done():
			return now
		}
	}
}

// sentBy returns what each interface has sent, in bytes; -1: unknown.
func sentBy(n *node.Node, netdevs []string) (sent []int64) {
	for _, name := range netdevs {
		v, err := sysfs.ReadUint(filepath.Join(n.Opts.Sysfs, "class/net", name, "statistics/tx_bytes"))
		if err != nil {
			sent = append(sent, -1)
			continue
		}
		sent = append(sent, int64(v))
	}
	return sent
}
