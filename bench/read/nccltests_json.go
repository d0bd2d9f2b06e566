package read

import (
	"encoding/json"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ncclTestsJSON is one of the results of -J.
type ncclTestsJSON struct {
	Size      *int64         `json:"size"`
	Type      string         `json:"type"`
	Operation string         `json:"redop"`
	Out       *ncclTestsHalf `json:"out_of_place"`
	In        *ncclTestsHalf `json:"in_place"`
	Each      *struct {
		Min *float64 `json:"min_us"`
		P50 *float64 `json:"p50_us"`
		P99 *float64 `json:"p99_us"`
		Max *float64 `json:"max_us"`
	} `json:"out_of_place_per_iter"`
}

// ncclTestsHalf is the out-of-place or in-place part of a result.
type ncclTestsHalf struct {
	Time  any `json:"time"` // number, or the text nan
	CPU   any `json:"cpu_time"`
	Alg   any `json:"alg_bw"`
	Bus   any `json:"bus_bw"`
	Wrong any `json:"nwrong"` // null if not checked
}

func (h *ncclTestsHalf) wrong() any {
	if h == nil {
		return nil
	}
	return h.Wrong
}

func (p *ncclTests) document(d *document) bool {
	results, ok := d.members["results"]
	if !d.has("nccl_version") && !d.has("config") || d.has("test_info") {
		return false
	}
	var args []string
	name := ""
	if d.get("args", &args) && len(args) > 0 {
		name = path.Base(args[0])
	}
	rows := 0
	err := results.list(func(object json.RawMessage, number int) error {
		var j ncclTestsJSON
		if err := json.Unmarshal(object, &j); err != nil {
			return err
		}
		rows++
		p.add(j.result(name, number))
		return nil
	})
	p.verdicts(d)
	switch {
	case d.err != nil:
		p.fail(d.errorLine(), "nccl-tests: the JSON is cut: %v", d.err)
	case !ok:
		p.fail(d.line, "nccl-tests: no results in the JSON")
	case err != nil:
		p.fail(results.line, "nccl-tests: invalid results: %v", err)
	case rows == 0:
		p.fail(results.line, "nccl-tests: no results in the list")
	}
	return true
}

// verdicts reads the program's verdicts on its own results.
func (p *ncclTests) verdicts(d *document) {
	for _, one := range []struct{ key, text string }{{"out_of_bounds", "values are out of bounds"},
		{"average_bus_bandwidth", "the average bus bandwidth is below what was asked for"}} {
		var verdict struct {
			Okay any `json:"okay"`
		}
		if d.get(one.key, &verdict) && (verdict.Okay == "false" || verdict.Okay == false) {
			p.fail(d.members[one.key].line, "nccl-tests failed: %s", one.text)
		}
	}
	var errs []string
	d.get("errors", &errs)
	errs = slices.DeleteFunc(errs, func(e string) bool { return e == "" })
	if len(errs) > 0 {
		p.fail(d.members["errors"].line, "nccl-tests failed: %s", strings.Join(errs, "; "))
	}
}

func (j *ncclTestsJSON) result(name string, number int) Result {
	r := Result{Tool: "nccl-tests", Line: number, Bytes: j.Size, Test: ncclTestsTest(name, j.Type, j.Operation)}
	for half, wrong := range []any{j.Out.wrong(), j.In.wrong()} {
		switch n := wrong.(type) {
		case float64:
			r.wrong(half, n)
		case string: // the text nan
			r.wrong(half, math.NaN())
		}
	}
	figures := j.Out
	if figures == nil && j.In != nil {
		figures = j.In
		r.Test += inPlaceOnly
	}
	if figures == nil {
		return r
	}
	any2 := func(what string, v any, unit float64) *float64 {
		switch v := v.(type) {
		case float64:
			return r.value(what, v, unit)
		case string:
			return r.figure(what, v, unit)
		}
		return nil
	}
	r.Rate = any2("alg_bw", figures.Alg, 1e9)
	r.BusRate = any2("bus_bw", figures.Bus, 1e9)
	average := any2("time", figures.Time, 1e-6)
	if average == nil {
		average = any2("cpu_time", figures.CPU, 1e-6)
	}
	if average != nil {
		r.latency().Avg, r.rounding = average, 0.5e-12
	}
	if e := j.Each; e != nil {
		for v, to := range map[*float64]**float64{e.Min: &r.latency().Min, e.P50: &r.latency().P50, e.P99: &r.latency().
			P99, e.Max: &r.latency().Max} {
			if v != nil {
				*to = r.value("time", *v, 1e-6)
			}
		}
	}
	r.alone(false)
	return r
}

// wrong marks elements with wrong values, out of place (0) and in place (1).
func (r *Result) wrong(half int, n float64) {
	if n > 0 || math.IsNaN(n) {
		r.fail("wrong elements%s: %s", [...]string{"", " (in place)"}[half], strconv.FormatFloat(n, 'f', -1, 64))
	}
}

// alone marks a row whose data did not use a network.
func (r *Result) alone(oneRank bool) {
	if oneRank || r.BusRate != nil && *r.BusRate == 0 && r.Rate != nil && *r.Rate > 0 {
		r.Marks = append(r.Marks, "no network: one rank alone")
	}
}

// inPlaceOnly ends the name of a test without out-of-place figures, which rccl-tests has.
const inPlaceOnly = ", in place"

// ncclTestsTest returns the name of a test, such as "all_reduce_perf, float sum".
func ncclTestsTest(program, kind, operation string) string {
	if _, err := strconv.Atoi(operation); err != nil && operation != "none" && operation != "" {
		kind += " " + operation
	}
	if program == "" {
		return kind
	}
	return program + ", " + kind
}
