package bench

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/suite"
)

// WriteCSV writes a line for each row, size of the sweep and KV cache. Rates are bytes per second, times seconds; an
// empty field was not measured. Of several sizes of messages, the smallest has its times here.
func WriteCSV(w io.Writer, s suite.Suite) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"table", "name", "transport", "op", "memory", "rails", "streams", "queue_pairs", "size",
		"goodput_bytes_per_second", "line_rate_bytes_per_second", "speedup_ratio", "latency_bytes", "latency_samples",
		"latency_mean_seconds", "latency_p50_seconds", "latency_p95_seconds", "latency_p99_seconds", "seconds", "failure"})
	for _, table := range []struct {
		name string
		rows []suite.Row
	}{{"comparison", s.Rows}, {"sweep", s.Sweep}} {
		for _, r := range table.rows {
			line := []string{table.name, r.Name, r.Transport, r.Op, r.Memory, strings.Join(r.Rails, " "), whole(r.Streams),
				whole(r.QueuePairs), whole(int(r.Size)), figure(r.Goodput), figure(r.LineRate), figure(r.Speedup)}
			if len(r.Latency) > 0 {
				l := r.Latency[0]
				line = append(line, whole(int(l.Bytes)), whole(l.Samples), figure(&l.Mean), figure(&l.P50), figure(&l.P95),
					figure(&l.P99))
			} else {
				line = append(line, "", "", "", "", "", "")
			}
			_ = out.Write(append(line, "", r.Failure))
		}
	}
	for _, c := range s.KVCache {
		name := c.Model
		if c.Tokens > 0 {
			name += ", " + whole(int(c.Tokens)) + " tokens"
		}
		_ = out.Write([]string{"kv_cache", name + ", " + c.Row, "", "", "", "", "", "", whole(int(c.Bytes)),
			figure(c.Goodput), "", "", "", "", "", "", "", "", figure(c.Seconds), c.Failure})
	}
	out.Flush() // keeps the first error of all writes
	return out.Error()
}

func whole(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func figure(v *float64) string {
	if v = finite(v); v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}
