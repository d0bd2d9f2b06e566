package page

import (
	"strings"
	"time"
)

// watched is a counter of congestion or loss.
type watched struct {
	row, name string
	labels    []string // beside rail; they are shown
}

// watchedRows are the counters that are shown when they move.
func watchedRows() []watched {
	prio, dir := []string{"direction", "priority"}, []string{"direction"}
	return []watched{
		{"port_ecn_marked_packets_total", "ECN-marked packets", nil},
		{"port_cnp_sent_total", "congestion notifications (CNP) sent", nil},
		{"port_cnp_handled_total", "congestion notifications (CNP) received", nil},
		{"port_cnp_ignored_total", "congestion notifications (CNP) ignored", nil},
		{"port_out_of_sequence_packets_total", "out-of-sequence packets", nil},
		{"port_packet_sequence_errors_total", "packet sequence errors (NAK)", nil},
		{"port_ack_timeouts_total", "ACK timeouts", nil},
		{"port_adaptive_retransmits_total", "adaptive retransmissions", nil},
		{"port_retransmitted_packets_total", "retransmitted packets", nil},
		{"port_rnr_naks_received_total", "receiver-not-ready NAKs (RNR)", nil},
		{"port_out_of_buffer_total", "packets dropped: no receive buffer", nil},
		{"port_icrc_errors_total", "corrupt packets (ICRC)", nil},
		{"port_transmit_discards_total", "transmit discards", nil},
		{"port_receive_discards_total", "receive discards", nil},
		{"port_symbol_errors_total", "link symbol errors", nil},
		{"port_pause_frames_total", "PFC pause frames", prio},
		{"port_global_pause_frames_total", "global pause frames", dir},
		{"netdev_phy_discards_total", "port discards", dir},
	}
}

// countsOver is how long a counter that moved is shown, so that one that moves now and then does not blink.
const countsOver = time.Minute

// counts keeps earlier values of counters.
type counts struct {
	rows []watched
	past map[string]*past // by row, rail and labels
}

// past is a counter about a minute ago, half a minute ago, and at the last read.
type past struct {
	old, young, last stand
}

type stand struct {
	at    time.Time
	value float64
}

func newCounts() counts { return counts{watchedRows(), map[string]*past{}} }

// congestion fills in the counters that moved in the last minute.
func (b *builder) congestion(at map[string]*Rail, now time.Time) {
	for _, w := range b.counts.rows {
		b.each(w.row, append([]string{"rail"}, w.labels...), func(l []string, v float64) {
			r := at[l[0]]
			if r == nil {
				return
			}
			rate, _ := b.counts.moved(w.row+"\xff"+strings.Join(l, "\xff"), v, now)
			if rate > 0 {
				r.Counters = append(r.Counters,
					Moving{w.row, strings.TrimSpace(w.name + " " + inWords(w.labels, l[1:])), rate})
			}
		})
	}
	for key, p := range b.counts.past {
		if now.Sub(p.last.at) > countsOver {
			delete(b.counts.past, key)
		}
	}
}

func inWords(labels, values []string) string {
	var words []string
	for i, l := range labels {
		switch values[i] {
		case "receive":
			words = append(words, "received")
		case "transmit":
			words = append(words, "sent")
		default:
			words = append(words, l+" "+values[i])
		}
	}
	return strings.Join(words, ", ")
}

// moved records a counter and returns its rate over the last half to whole minute, as far as it was read.
func (c *counts) moved(key string, value float64, now time.Time) (perSecond float64, known bool) {
	stands := stand{now, value}
	p := c.past[key]
	if p == nil || value < p.last.value || now.Sub(p.last.at) > countsOver {
		c.past[key] = &past{stands, stands, stands}
		return 0, false
	}
	p.last = stands
	if now.Sub(p.young.at) >= countsOver/2 {
		p.old, p.young = p.young, stands
	}
	took := now.Sub(p.old.at).Seconds()
	if took <= 0 {
		return 0, false
	}
	return (value - p.old.value) / took, true
}
