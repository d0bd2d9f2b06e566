package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/fingerprint"
)

// failedCause is why queue pairs fail, and what to do about it.
type failedCause struct {
	kind fingerprint.Kind
	why  string
	fix  []string
}

// failedCauses returns the causes that are findings. A repetition that ended well is none, and the counters of loss are
// judged by lossy_rail.
func failedCauses() []failedCause {
	return []failedCause{
		{fingerprint.SilentPeer, "The peer's process ended, its queue pair failed, or the path is dead: the counters " +
			"of this end are the same. They do not show a fault of this node.",
			[]string{"# the log of the job names the peer (IBV_WC_RETRY_EXC_ERR, status 12): did its process end " +
				"first?",
				"# railscope fleet shows which other nodes count it: what they share, a peer or a leaf switch, is " +
					"the place to look"}},
		{fingerprint.NoReceive, "Software at the peer posted no receive buffers: a process that hangs, or a queue " +
			"that is too short. The network carried the requests.",
			[]string{"# the log of the job names the peer (IBV_WC_RNR_RETRY_EXC_ERR, status 13): its receive " +
				"queues, and what its process was doing"}},
		{fingerprint.Refused, "The two ends disagree about memory: a wrong rkey, an address out of range, or " +
			"memory that was released too early. It is software, not the network.",
			[]string{"# the log of the job names the peer (IBV_WC_REM_ACCESS_ERR, status 10): versions of the " +
				"library at both ends"}},
		{fingerprint.Rejected, "The peer's adapter does not accept such a request: an operation or a length that its " +
			"queue pair does not allow. It is software, not the network.",
			[]string{"# the log of the job names the peer (IBV_WC_REM_INV_REQ_ERR, status 9): versions of the " +
				"library at both ends"}},
		{fingerprint.AtThisEnd, "A wrong local key or length, a memory region without the right, or a queue pair " +
			"that was flushed, as at the end of a job: the counters are the same.",
			[]string{"# nothing, if a job ended at that time; else its log has the status of the request " +
				"(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_WR_FLUSH_ERR)"}},
	}
}

// checkFailedPairs reports why queue pairs of each rail failed, by its error counters.
func checkFailedPairs(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		causes := failures(f.Live, r.Name)
		var out finding.Finding
		var evidence, why []string
		for _, c := range failedCauses() {
			if !slices.ContainsFunc(causes, func(one fingerprint.Cause) bool { return one.Kind == c.kind }) {
				continue
			}
			why = append(why, c.why)
			out.Fix = append(out.Fix, c.fix...)
		}
		if len(why) == 0 {
			continue
		}
		for _, c := range causes {
			evidence = append(evidence, c.String())
		}
		out.Subject, out.Where = r.Subject(), r.Where()
		out.Evidence = fmt.Sprintf("in %s: %s", minutes(f.Live.Over), strings.Join(evidence, "; "))
		out.Why = strings.Join(why, " ")
		report(out)
	}
}

// failures returns what happened to the queue pairs of a rail in the window: by each fault that is over, or, before its
// counters have stood still, by how much they rose.
func failures(l *facts.Live, name string) (causes []fingerprint.Cause) {
	for _, one := range l.Faults[name] {
		causes = fingerprint.Add(causes, fingerprint.Causes(one.Rose))
	}
	if len(causes) > 0 {
		slices.SortFunc(causes, func(a, b fingerprint.Cause) int { return int(a.Kind - b.Kind) })
		return causes
	}
	var rose fingerprint.Counts
	for c, row := range map[fingerprint.Counter]string{
		fingerprint.Failed:   "port_requester_completion_errors_total",
		fingerprint.Flushed:  "port_requester_completion_flush_errors_total",
		fingerprint.Invalid:  "port_requester_remote_invalid_request_errors_total",
		fingerprint.Access:   "port_requester_remote_access_errors_total",
		fingerprint.NotReady: "port_rnr_retries_exceeded_total",
		fingerprint.Timeouts: "port_ack_timeouts_total",
		fingerprint.Silent:   "port_transport_retries_exceeded_total",
		fingerprint.Adaptive: "port_adaptive_retransmits_total",
	} {
		rose[c] = uint64(l.Increased(name, row))
	}
	return fingerprint.Causes(rose)
}
