package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/probe/result"
)

// samples returns n times of at least least.
func samples(n int, least time.Duration) *result.Latency {
	l := &result.Latency{}
	for i := range n {
		l.Samples = append(l.Samples, least+time.Duration(i)*least/100)
	}
	return l
}

// everything returns a round with everything that --all, --sweep, --rails and --kv-cache measure.
func everything() (result.Result, Options) {
	r := round(92.6, 92.9)
	r.QueuePairs, r.Versions = 1, []result.Mismatch{{Component: "kernel", Here: "6.8.0", There: "6.8.0"},
		{Component: "firmware", Here: "28.43.1014", There: "28.43.1014"}}
	r.TCP[0].Rails = []result.TCPRail{{Rail: "0", BytesPerSecond: 4.7 * gb, Counted: new(int64(50 * mb))},
		{Rail: "1", BytesPerSecond: 4.7 * gb, Counted: new(int64(51 * mb))}}
	add := func(m result.Measured) { r.Extras = append(r.Extras, m) }
	flow := func(rail string, op result.Op, gigabits float64) result.MeasuredFlow {
		return result.MeasuredFlow{Rail: rail, Op: op, Goodput: new(gigabits * gb), Latency: samples(100, 3100),
			Counted: new(int64(60 * mb))}
	}
	for _, rail := range []string{"0", "1"} {
		add(result.Measured{Kind: result.Reads, QueuePairs: 1,
			Flows: []result.MeasuredFlow{flow(rail, result.Read, 91)}})
	}
	add(result.Measured{Kind: result.Reads, QueuePairs: 1,
		Flows: []result.MeasuredFlow{flow("0", result.Read, 90), flow("1", result.Read, 90.5)}})
	add(result.Measured{Kind: result.Rails, QueuePairs: 1,
		Flows: []result.MeasuredFlow{flow("0", result.Write, 92), flow("1", result.Write, 91)}})
	add(result.Measured{Kind: result.Messages, Size: 4096, Flows: []result.MeasuredFlow{
		{Rail: "0", Op: result.Write, Latency: samples(100, 4000)}, {Rail: "1", Op: result.Write,
			Latency: samples(100, 4100)},
		{Rail: "0", Op: result.Read, Latency: samples(100, 4600)}, {Rail: "1", Op: result.Read, Latency: samples(100,
			4500)}}})
	for size := int64(64 << 10); size <= 64<<20; size *= 4 {
		n := 100
		if size > 16<<20 {
			n = 12 // too few for a P95
		}
		took := time.Duration(float64(size)/(150*gb)*1e9) + 3*time.Microsecond
		add(result.Measured{Kind: result.Sweep, Size: size, Transfer: samples(n, took),
			Flows: []result.MeasuredFlow{flow("0", result.Write, 90), flow("1", result.Write, 91)}})
	}
	for _, page := range []int64{4 << 10, 32 << 10} {
		add(result.Measured{Kind: result.KVCache, Size: page, Flows: []result.MeasuredFlow{flow("0", result.Read, 60)}})
		add(result.Measured{Kind: result.KVCache, Size: page,
			Flows: []result.MeasuredFlow{flow("0", result.Read, 59), flow("1", result.Read, 61)}})
	}
	add(result.Measured{Kind: result.KVCache, Size: 32 << 10,
		TCP: &result.TCPResult{Streams: 4, BytesPerSecond: 9 * gb}})
	for _, size := range []int64{8, 4096} {
		add(result.Measured{Kind: result.TCPTime, Size: size, TCP: &result.TCPResult{Streams: 1},
			Flows: []result.MeasuredFlow{
				{Rail: "0", Latency: samples(100, 31000)}, {Rail: "1", Latency: samples(100, 33000)}}})
	}
	add(result.Measured{Kind: result.OneTCP, Flows: []result.MeasuredFlow{{Rail: "0"}},
		TCP: &result.TCPResult{Streams: 1,
			BytesPerSecond: 8.2 * gb, Rails: []result.TCPRail{{Rail: "0", BytesPerSecond: 8.2 * gb}}}})
	add(result.Measured{Kind: result.TCPStreams, TCP: &result.TCPResult{Streams: 8, BytesPerSecond: 13 * gb,
		Rails: []result.TCPRail{{Rail: "0", BytesPerSecond: 6 * gb}, {Rail: "1", BytesPerSecond: 7 * gb}}}})
	add(result.Measured{Kind: result.Bond, Flows: []result.MeasuredFlow{{Rail: "bond0"}},
		TCP: &result.TCPResult{Streams: 4,
			BytesPerSecond: 11 * gb, Rails: []result.TCPRail{{Rail: "eth0", Counted: new(int64(99 * mb))},
				{Rail: "eth1", Counted: new(int64(0))}}}})
	return r, Options{Settings: []suite.Setting{{Name: "NCCL_IB_HCA", Here: "rocep1s0f0"}},
		Caches: append(Caches("Llama 3 8B", 1), Cache{Model: "4GB", Bytes: 4e9, Page: 4 << 10})}
}

// TestSteps: a suite that was made in steps has all tables, what to do, and the steps for --resume.
func TestSteps(t *testing.T) {
	r, o := everything()
	first := steps.Done{Name: steps.First}
	first.Add(result.Result{Peer: r.Peer, Start: r.Start, Outcome: result.OK})
	o.Steps = []steps.Done{first}
	var table, object bytes.Buffer
	if err := errors.Join(WriteTable(&table, r, o), WriteJSON(&object, r, o)); err != nil {
		t.Fatal(err)
	}
	golden(t, "steps.table", table.Bytes())
	golden(t, "steps.json", object.Bytes()) // also read by the report's tests
	if f, err := steps.Read(&object); err != nil || len(f.Steps) != 1 || f.Steps[0].Name != steps.First {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestLargestSuite: the file of a suite over 16 rails whose adapters stamp completions, with 1,000 messages of each
// size over each of them, is read again.
func TestLargestSuite(t *testing.T) {
	times := func() (list []time.Duration) {
		for i := range 1000 {
			list = append(list, time.Duration(12345+i))
		}
		return list
	}
	var flows []result.MeasuredFlow
	base := result.Result{Peer: "b:10092", Transport: result.RDMA, Outcome: result.OK}
	for i := range 16 {
		name := fmt.Sprint(i)
		base.Rails = append(base.Rails, result.RailResult{Rail: name, Device: "mlx5_" + name,
			Latency: &result.Latency{Samples: times(), Adapter: times(), Host: times()}})
		for _, op := range []result.Op{result.Write, result.Read} {
			flows = append(flows, result.MeasuredFlow{Rail: name, Op: op, Latency: &result.Latency{Samples: times()}})
		}
	}
	var done []steps.Done
	for _, s := range steps.Of(steps.Parts(), steps.Sizes{Sweep: []int{4096}, Pages: []int{4096}}) {
		d := steps.Done{Name: s.Name, Extras: s.Extras}
		for range steps.Runs {
			r := base
			for _, e := range s.Extras {
				r.Extras = append(r.Extras, result.Measured{Kind: e.Kind, Size: 4096, Flows: flows})
			}
			d.Add(r)
		}
		done = append(done, d)
	}
	rounds := steps.Joined(done)
	var file bytes.Buffer
	if err := WriteJSON(&file, rounds[2], Options{Earlier: rounds[:2], Steps: done}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB", file.Len()>>20)
	if read, err := steps.Read(&file); err != nil || len(read.Steps) != len(done) {
		t.Errorf("%d steps, %v", len(read.Steps), err)
	}
}

// TestSuite: tables, JSON and CSV of a complete suite, with tables that fit a terminal.
func TestSuite(t *testing.T) {
	r, o := everything()
	o.Earlier = []result.Result{round(92, 92.1)}
	o.Compared = []suite.Change{{Name: "all rails, WRITE", Before: 190 * gb, After: 185.5 * gb, Changed: true},
		{Name: "rail 0, WRITE", Before: 93 * gb, After: 93.1 * gb}, {Name: "gone", Missing: "not measured now"}}
	var table, lines, object bytes.Buffer
	if err := WriteTable(&table, r, o); err != nil {
		t.Fatal(err)
	}
	golden(t, "suite.table", table.Bytes())
	for line := range strings.Lines(table.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if err := WriteCSV(&lines, Suite(r, o)); err != nil {
		t.Fatal(err)
	}
	golden(t, "suite.csv", lines.Bytes())
	if err := WriteJSON(&object, r, o); err != nil {
		t.Fatal(err)
	}
	golden(t, "suite.json", object.Bytes()) // also read by the report's tests
	var again suite.Suite
	if err := json.Unmarshal(object.Bytes(), &again); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", text(t, again)), fmt.Sprintf("%+v", text(t, Suite(r, o))); got != want {
		t.Errorf("JSON has\n%s\nof\n%s", got, want)
	}
}

func text(t *testing.T, s suite.Suite) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCaches: times are derived from the bursts of pages, and are shown beside those of large reads.
func TestCaches(t *testing.T) {
	r, o := everything()
	s := Suite(r, o)
	for _, c := range s.KVCache {
		if c.Model != "Llama 3 8B" || c.Tokens != 8192 {
			continue
		}
		want, headline := map[string]float64{tables.OneRail: 60 * gb,
			tables.AllRails: 120 * gb, tables.OverTCP: 9 * gb}[c.Row],
			map[string]float64{tables.OneRail: 91 * gb, tables.AllRails: 180.5 * gb, tables.OverTCP: 12.4 * gb}[c.Row]
		if c.Seconds == nil || *c.Seconds != float64(1<<30)/want || c.Headline == nil || *c.Headline != want/headline {
			t.Errorf("%+v", c)
		}
	}
	if n := len(s.KVCache); n != 5*3 || s.KVCache[14].Failure == "" || s.KVCache[13].Seconds == nil {
		t.Errorf("%d caches: %+v", n, s.KVCache)
	}
}
