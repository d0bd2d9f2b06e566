package bench

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
)

// WriteCSV writes a line for each row, size of the sweep, ratio, time of a ring and KV cache. Rates are bytes per
// second, times are seconds, and an empty field was not measured. Times of messages are those of the smallest size.
func WriteCSV(w io.Writer, s suite.Suite) error {
	out := csv.NewWriter(w)
	columns := []string{"table", "name", "transport", "op", "memory", "rails", "streams", "queue_pairs", "size",
		"goodput_bytes_per_second", "line_rate_bytes_per_second", "speedup_ratio", "latency_bytes", "latency_samples",
		"latency_mean_seconds", "latency_p50_seconds", "latency_p95_seconds", "latency_p99_seconds", "seconds",
		"failure"}
	_ = out.Write(columns)
	write := func(line []string) {
		for i := range line {
			line[i] = terminal.Plain(line[i])
		}
		_ = out.Write(line)
	}
	for _, table := range []struct {
		name string
		rows []suite.Row
	}{{"comparison", s.Rows}, {"sweep", s.Sweep}} {
		for _, r := range table.rows {
			write(rowLine(table.name, r))
		}
	}
	other := func(table, name string, fields map[string]string) {
		line := make([]string, len(columns))
		line[0], line[1] = table, name
		for column, text := range fields {
			line[slices.Index(columns, column)] = text
		}
		write(line)
	}
	for _, ratio := range s.Ratios {
		other("ratio", ratio.Row+" ÷ "+ratio.Of, map[string]string{"speedup_ratio": figure(&ratio.Ratio)})
	}
	if s.Ring != nil {
		for _, one := range []struct {
			name    string
			seconds *float64
		}{{"measured", s.Measured}, {"predicted", s.Predicted}, {"over TCP", s.TCP}} {
			other("all_reduce", one.name, map[string]string{"size": whole(int(s.Bytes)),
				"seconds": figure(one.seconds)})
		}
	}
	for _, c := range s.KVCache {
		name := c.Model
		if c.Tokens > 0 {
			name += ", " + whole(int(c.Tokens)) + " tokens"
		}
		other("kv_cache", name+", "+c.Row, map[string]string{"size": whole(int(c.Bytes)),
			"goodput_bytes_per_second": figure(c.Goodput), "seconds": figure(c.Seconds), "failure": c.Failure})
	}
	out.Flush()
	return out.Error() // the first of all writes
}

func rowLine(table string, r suite.Row) []string {
	latency := make([]string, 6)
	if len(r.Latency) > 0 {
		l := r.Latency[0]
		latency = []string{whole(int(l.Bytes)), whole(l.Samples), figure(&l.Mean), figure(&l.P50), figure(&l.P95),
			figure(&l.P99)}
	}
	line := []string{table, r.Name, r.Transport, r.Op, r.Memory, strings.Join(r.Rails, " "), whole(r.Streams),
		whole(r.QueuePairs), whole(int(r.Size)), figure(r.Goodput), figure(r.LineRate), figure(r.Speedup)}
	return append(append(line, latency...), "", r.Failure)
}

func whole(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func figure(v *float64) string {
	v = stats.Finite(v)
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}
