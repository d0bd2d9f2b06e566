package examine

import (
	"context"
	"time"
)

// Follow reads hard facts after each event, until ctx is done: at once, up to three times in 50 ms until a finding is
// raised, a second after the last event, because an event may precede the change that it reports, and 5 s later. In a
// storm of events it reads once a second.
func (e *Examiner) Follow(ctx context.Context, events <-chan struct{}) {
	var late <-chan time.Time // time of the next reading after the last event
	repeated := false         // there was one
	left, at, one := float64(atOnce), time.Now(), time.Duration(0)
	read := func() (raised bool) {
		r := e.read(ctx, true)
		left = max(left-float64(r.n), 0) // a long storm leaves no debt
		if r.n > 0 {
			one = r.took / time.Duration(r.n)
		}
		return r.raised
	}
	for {
		select {
		case <-events:
		case <-late:
			read()
			switch late = nil; {
			case !repeated:
				late, repeated = time.After(later), true
			case e.missing():
				e.want()
			}
			continue
		case <-ctx.Done():
			return
		}
		left = min(left+share*float64(time.Since(at))/float64(max(one, time.Millisecond)), atOnce)
		at = time.Now()
		readings := min(settles, int(left))
		if readings == 0 {
			readings = 1
			sleep(ctx, follow)
		}
		for raised := false; readings > 0 && !raised; readings-- {
			raised = read()
			if readings > 1 && !raised {
				sleep(ctx, again)
			}
		}
		late, repeated = time.After(follow), false
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
