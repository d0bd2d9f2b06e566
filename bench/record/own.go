package record

import "github.com/railscope/railscope/internal/rail"

// strayPart is the share of the probe's bytes that the probe does not count: acknowledgements, and writes of 8 bytes.
const strayPart = 0.05

// leaveOutOwn subtracts the bytes of railscope's own rounds from those of the rails and returns their sum; nil if
// unknown. Rates stay unchanged.
func (r *Recorder) leaveOutOwn(rails []Rail) *int64 {
	if r.o.Own == nil {
		return nil
	}
	now, err := r.o.Own()
	if err == nil {
		err = r.ownErr
	}
	if err != nil {
		r.note("which bytes are of railscope's own rounds, so these are included", err)
		return nil
	}
	var all int64
	for i := range rails {
		key := rail.Key(rails[i].Device, r.rails[i].rail.Port)
		before, after := r.own[key], now[key]
		if after.Transmit < before.Transmit || after.Receive < before.Receive || after.TCP < before.TCP {
			r.note("rail "+rails[i].Rail+": which bytes are of railscope's own rounds", errRestarted)
			continue
		}
		tcp := int64(after.TCP - before.TCP)
		out, in := int64(after.Transmit-before.Transmit), int64(after.Receive-before.Receive)
		all += out + in
		if r.rails[i].shared { // one counter covers RDMA and TCP
			tcp = 0
			if rails[i].TCP != nil {
				tcp = out + in
			}
		}
		rails[i].leaveOut(out, in, tcp)
	}
	return &all
}

// leaveOut subtracts bytes of both directions; tcp of them went over TCP.
func (r *Rail) leaveOut(out, in, tcp int64) {
	total := out + in
	if total == 0 {
		return
	}
	stray := int64(strayPart * float64(total))
	byRDMA := float64(total-tcp) / float64(total)
	for _, d := range []struct {
		of  *Direction
		own int64
	}{{&r.Transmit, int64(byRDMA * float64(out))}, {&r.Receive, int64(byRDMA * float64(in))}} {
		if d.of.Wire == nil || *d.of.Wire == 0 {
			continue
		}
		left := *d.of.Wire - d.own
		if left <= stray {
			left, d.of.Peak = 0, 0
		}
		part := float64(left) / float64(*d.of.Wire)
		for _, v := range []**int64{&d.of.Packets, &d.of.Payload} {
			if *v != nil {
				*v = new(int64(part * float64(**v)))
			}
		}
		d.of.Wire = &left
	}
	if r.TCP != nil {
		left := *r.TCP - tcp
		if left <= stray {
			left = 0
		}
		r.TCP = &left
	}
}
