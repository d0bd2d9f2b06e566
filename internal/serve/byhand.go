package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Requests of commands on this machine to the running railscope on its socket: rounds and facts of its peers, for
// which it has the token, and its slot for rounds of their own. See docs/adr/0027-rounds-by-hand.md.
const (
	PathBench = "/-/bench" // BenchAsk → BenchLine per line, the last with the result
	PathFacts = "/-/facts" // ?peer= → PeerFacts
	PathHold  = "/-/hold"  // → one line when the slot is held: until the connection is closed
	PathOwn   = "/-/own"   // probe.OwnBytes of the holder of the slot

	VersionField = "Railscope-Version" // required in each of these requests: both ends must have the same version

	MaxAsk      = 64 << 10 // bytes of a request
	LineTime    = 10 * time.Second
	progressGap = 100 * time.Millisecond // least time between two lines of progress
	FactsTime   = 25 * time.Second
	MaxHold     = options.MaxTimeout + time.Minute
)

// QuickSamples is the number of 8 B writes of a quick round, per rail.
const QuickSamples = 50

// BenchAsk asks for an interactive round.
type BenchAsk struct {
	Peer   string            `json:"peer"`
	Set    map[string]string `json:"set"` // options of the command line, by key below probe
	Extras []result.Extra    `json:"extras"`
	Quick  bool              `json:"quick"` // take few samples
	Most   time.Duration     `json:"most"`  // longest duration of the round; 0: as configured
	Plans  [][]result.Extra  `json:"plans"` // what rounds with these would need; no round is made. Nil: a round
}

// BenchLine is one line of the answer.
type BenchLine struct {
	Progress  *result.Progress `json:"progress,omitempty"`
	Result    *result.Result   `json:"result,omitempty"`
	Plans     *result.Plans    `json:"plans,omitempty"`
	Failure   *result.Failure  `json:"failure,omitempty"`   // why there are no plans
	Simulated bool             `json:"simulated,omitempty"` // the result is from the demo
}

// PeerFacts are the facts of a peer, for doctor.
type PeerFacts struct {
	Node    string          `json:"node"`
	Facts   json.RawMessage `json:"facts,omitempty"`
	Failure *result.Failure `json:"failure,omitempty"`
	Error   string          `json:"error,omitempty"` // any other error
}

// maxPlans bounds the plans of a request.
const maxPlans = 64

// benchKeys returns the options that an interactive round may change, by key below probe.
func benchKeys() []string {
	return []string{"burst", "depth", "latency_samples", "min_of_expected", "timeout"}
}

// change returns a function that applies the options of a to those of scheduled rounds, or the error in them.
func (a *BenchAsk) change() (func(*options.Options), error) {
	tried, texts := options.DefaultOptions(), map[string]*string{}
	for key, text := range a.Set {
		if !slices.Contains(benchKeys(), key) {
			return nil, fmt.Errorf("%.40q cannot be set for one round", key)
		}
		texts[key] = &text
	}
	if bad := config.Override(&tried, texts); bad != nil {
		return nil, fmt.Errorf("%s %s", bad.Key, bad.Text)
	}
	if len(a.Plans) > maxPlans {
		return nil, fmt.Errorf("%d plans: the limit is %d", len(a.Plans), maxPlans)
	}
	for _, list := range append([][]result.Extra{a.Extras}, a.Plans...) {
		if err := probe.CheckExtras(list); err != nil {
			return nil, err
		}
	}
	return func(o *options.Options) {
		_ = config.Override(o, texts) // valid, as tried
		o.Extras = a.Extras
		if a.Quick {
			o.LatencySamples = min(o.LatencySamples, QuickSamples)
		}
		if a.Most > 0 {
			o.Timeout = min(o.Timeout, a.Most)
		}
	}, nil
}

// handRounds answers commands on this machine.
type handRounds struct {
	service   *probe.Service
	name      func() string // name of this node
	simulated bool
	own       chan ownNote // bytes moved by the holder of the slot
}

// HeldLine reports that the slot is held.
type HeldLine struct {
	Node string `json:"node"` // name of this node
}

// ownNote is the traffic while the slot was held.
type ownNote struct {
	bytes probe.OwnBytes
	noted chan<- error
}

func (h *handRounds) register(mux *http.ServeMux) {
	h.own = make(chan ownNote)
	for pattern, answer := range map[string]http.HandlerFunc{"POST " + PathBench: h.bench, "GET " + PathFacts: h.facts,
		"POST " + PathHold: h.hold, "POST " + PathOwn: h.noteOwn} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(VersionField); got != version.Version {
				http.Error(w, fmt.Sprintf("it is version %.40q, and this command %.40q: restart it", version.Version,
					got),
					http.StatusPreconditionFailed)
				return
			}
			// The whole body is read: otherwise the server does not notice that a client is gone.
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxAsk))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			answer(w, r)
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // writes nothing to a client that is gone: SIGPIPE would end the demo
			}
		})
	}
}

// refuse answers with an error of the service.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, probe.ErrNotPeer):
		status = http.StatusNotFound
	case errors.Is(err, probe.ErrInUse):
		status = http.StatusConflict
	}
	http.Error(w, err.Error(), status)
}

// lines writes an answer line by line. Its context ends when the client is gone, or does not read.
type lines struct {
	w      http.ResponseWriter
	out    *http.ResponseController
	gone   func() error // reason why the request ended
	cancel context.CancelFunc
}

// stream begins an answer of lines, which may last longer than other answers.
func stream(w http.ResponseWriter, r *http.Request, limit time.Duration) (context.Context, *lines) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	l := &lines{w, http.NewResponseController(w), ctx.Err, cancel}
	_ = l.out.SetReadDeadline(time.Time{}) // the deadline would end the request
	_ = l.out.SetWriteDeadline(time.Now().Add(limit + LineTime))
	w.Header().Set("Content-Type", "application/x-ndjson")
	return ctx, l
}

func (l *lines) send(v any) {
	_ = l.out.SetWriteDeadline(time.Now().Add(LineTime))
	err := l.gone()
	if err == nil {
		err = errors.Join(json.NewEncoder(l.w).Encode(v), l.out.Flush())
	}
	if err != nil {
		l.cancel()
	}
}

func (h *handRounds) bench(w http.ResponseWriter, r *http.Request) {
	var ask BenchAsk
	err := json.NewDecoder(r.Body).Decode(&ask)
	var change func(*options.Options)
	if err == nil {
		change, err = ask.change()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, out := stream(w, r, MaxHold)
	defer out.cancel()
	if ask.Plans != nil {
		h.plans(ctx, w, out, &ask, change)
		return
	}
	var last result.Progress
	var sent time.Time
	res, err := h.service.Bench(ctx, ask.Peer, change, func(p result.Progress) {
		same := p.Stage == last.Stage && p.Rail == last.Rail && p.Step == last.Step
		if same && !p.Ended && time.Since(sent) < progressGap {
			return
		}
		last, sent = p, time.Now()
		out.send(BenchLine{Progress: &p})
	})
	if err != nil {
		refuse(w, err)
		return
	}
	out.send(BenchLine{Result: &res, Simulated: h.simulated})
}

// plans answers what rounds would need.
func (h *handRounds) plans(ctx context.Context, w http.ResponseWriter, out *lines, ask *BenchAsk,
	change func(*options.Options)) {
	plans, err := h.service.Plans(ctx, ask.Peer, change, ask.Plans)
	failed, ok := errors.AsType[*result.Failure](err)
	switch {
	case ok:
		out.send(BenchLine{Failure: failed})
	case err != nil:
		refuse(w, err)
	default:
		out.send(BenchLine{Plans: &plans, Simulated: h.simulated})
	}
}

func (h *handRounds) facts(w http.ResponseWriter, r *http.Request) {
	ctx, out := stream(w, r, FactsTime)
	defer out.cancel()
	node, data, err := h.service.Facts(ctx, r.URL.Query().Get("peer"))
	if errors.Is(err, probe.ErrNotPeer) {
		refuse(w, err)
		return
	}
	answer := PeerFacts{Node: node, Facts: data}
	if f, ok := errors.AsType[*result.Failure](err); ok {
		answer.Failure = f
	} else if err != nil {
		answer.Error = err.Error()
	}
	out.send(answer)
}

func (h *handRounds) hold(w http.ResponseWriter, r *http.Request) {
	ctx, out := stream(w, r, MaxHold)
	defer out.cancel()
	err := h.service.Hold(ctx, func(ctx context.Context, add func(probe.OwnBytes) error) {
		out.send(HeldLine{h.name()})
		for {
			select {
			case <-ctx.Done():
				return
			case note := <-h.own:
				note.noted <- add(note.bytes)
			}
		}
	})
	if err != nil {
		refuse(w, err)
	}
}

func (h *handRounds) noteOwn(w http.ResponseWriter, r *http.Request) {
	note, noted := ownNote{}, make(chan error, 1)
	if err := json.NewDecoder(r.Body).Decode(&note.bytes); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	note.noted = noted
	select {
	case h.own <- note:
		if err := <-noted; err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	case <-time.After(time.Second):
		http.Error(w, "nobody holds the slot", http.StatusConflict)
	case <-r.Context().Done():
	}
}
