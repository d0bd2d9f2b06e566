package read

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// perftestJSON holds the results of --out_json. Its rates have no unit: they are in MiB/s, or with --report_gbits in
// Gb/s.
type perftestJSON struct {
	Size    *int64   `json:"MsgSize"`
	Average *float64 `json:"BW_average"`
	Alone   *float64 `json:"bw_avg"` // only with --output=bandwidth
	Message *float64 `json:"MsgRate"`
	Min     *float64 `json:"t_min"`
	Max     *float64 `json:"t_max"`
	Typical *float64 `json:"t_typical"`
	Mean    *float64 `json:"t_avg"`
	Latency *float64 `json:"avg_lat"` // only with --output=latency
	P99     *float64 `json:"percentile_99"`
}

func (p *perftest) document(d *document) bool {
	if !d.has("test_info") && !strings.Contains(string(d.text[:min(len(d.text), 100)]), "test_info") {
		return false
	}
	if d.err != nil {
		d = newDocument(d.line, relaxed(d.text))
	}
	var info struct {
		Test   string `json:"test"`
		Device string `json:"Device"`
		Dual   string `json:"Dual_port"`
		CUDA   *int   `json:"cuda_device"`
		MUSA   *int   `json:"musa_device"`
		ROCm   string `json:"Use_ROCm_memory"`
	}
	d.get("test_info", &info)
	run := perftestRun{test: info.Test, rail: info.Device, lanes: 1}
	run.title(info.Test)
	if info.Dual == "ON" {
		run.lanes *= 2
	}
	switch {
	case info.CUDA != nil:
		run.memory = perftestKind("CUDA")
	case info.MUSA != nil:
		run.memory = perftestKind("MUSA")
	case info.ROCm == "ON":
		run.memory = perftestKind("ROCm")
	}
	found := false
	for key, half := range map[string]string{"results": "", "results_local": "Local", "results_remote": "Remote"} {
		var j perftestJSON
		if !d.get(key, &j) {
			continue
		}
		r := run.result(half)
		r.Line, r.Bytes = d.members[key].line, j.Size
		j.rate(&r)
		j.latency(&r)
		p.add(r)
		found = true
	}
	switch {
	case !found:
		p.fail(d.errorLine(), "perftest: the JSON is cut, or has no results")
	case d.err != nil:
		p.fail(d.errorLine(), "perftest: the JSON is cut: %v", d.err)
	}
	return true
}

// relaxed converts perftest's output to JSON. Until 23.10 names and texts have no quotes and commas precede braces;
// later versions also write sl: and nan.
func relaxed(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/4)
	for i := 0; i < len(text); {
		switch b := text[i]; {
		case b == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			out = append(out, text[i:end]...)
			i = end
		case strings.IndexByte("{}[]:, \t\r\n", b) >= 0:
			if b == '}' || b == ']' {
				if n := len(bytes.TrimRight(out, " \t\r\n")); n > 0 && out[n-1] == ',' {
					out[n-1] = ' '
				}
			}
			out = append(out, b)
			i++
		default:
			end := i
			for end < len(text) && strings.IndexByte("{}[]:,\"\r\n", text[end]) < 0 {
				end++
			}
			out = append(out, bareword(strings.TrimSpace(string(text[i:end])))...)
			i = end
		}
	}
	return out
}

// bareword quotes an unquoted text for JSON.
func bareword(word string) string {
	switch word {
	case "true", "false", "null":
		return word
	case "nan", "-nan", "inf", "-inf":
		return "null"
	}
	if json.Valid([]byte(word)) { // a number
		return word
	}
	return strconv.Quote(word)
}

// rate sets the rate. The message rate shows whether its unit is MiB/s or Gb/s: they differ by a factor of 119.
func (j *perftestJSON) rate(r *Result) {
	average := j.Average
	if average == nil {
		average = j.Alone
	}
	if average == nil {
		return
	}
	unit := float64(1 << 20)
	if j.Message == nil || j.Size == nil || *j.Message <= 0 || *average <= 0 || *j.Size == 0 {
		r.Marks = append(r.Marks, "the file has no unit: read as MiB/s")
	} else if *j.Message*1e6*float64(*j.Size)/(*average*unit) > math.Sqrt(1e9/8/(1<<20)) {
		unit = 1e9 / 8
	}
	r.Rate = r.value("BW_average", *average, unit)
}

func (j *perftestJSON) latency(r *Result) {
	set := func(name string, v *float64, to func(*Latency) **float64) {
		if v != nil {
			*to(r.latency()) = r.value(name, *v, 1e-6)
			r.rounding = 0.005e-6
		}
	}
	set("t_avg", j.Mean, func(l *Latency) **float64 { return &l.Avg })
	set("avg_lat", j.Latency, func(l *Latency) **float64 { return &l.Avg })
	set("t_min", j.Min, func(l *Latency) **float64 { return &l.Min })
	set("t_typical", j.Typical, func(l *Latency) **float64 { return &l.P50 })
	set("percentile_99", j.P99, func(l *Latency) **float64 { return &l.P99 })
	set("t_max", j.Max, func(l *Latency) **float64 { return &l.Max })
}
