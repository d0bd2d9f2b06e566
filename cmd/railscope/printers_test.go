package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/nixl"
	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/bench/record"
	benchreport "github.com/railscope/railscope/bench/report"
	"github.com/railscope/railscope/bench/storage"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/doctor/verdict"
	livepage "github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/gate"
	"github.com/railscope/railscope/fleet/why"
	"github.com/railscope/railscope/internal/bundle"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// fillText sets every string within v to s, every number to 1 and every bool, with one element in each list and map.
func fillText(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillText(v.Elem(), s)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillText(v.Index(0), s)
	case reflect.Array:
		for i := range v.Len() {
			fillText(v.Index(i), s)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillText(key, s)
		fillText(value, s)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillText(v.Field(i), s)
			}
		}
	default: // functions and interfaces contain no text
	}
}

func hostile[T any](s string) (v T) {
	fillText(reflect.ValueOf(&v).Elem(), s)
	return v
}

// series answers each query with one series of the queried row.
type series string

func (s series) Each(_ string, labels []string, each func([]string, float64)) bool {
	values := make([]string, len(labels))
	for i := range values {
		values[i] = string(s)
	}
	each(values, 1)
	return true
}

// printers returns all output of railscope for people, with hostile text in place of everything from outside.
func printers(t *testing.T, s string) map[string]func(w io.Writer) error {
	raised := finding.Finding{Check: s, Severity: finding.Critical, Subject: "rail " + s, Where: s, Evidence: s, Why: s,
		Fix: []string{s, "# " + s}, Node: s}
	all := map[string]func(w io.Writer) error{
		"rails":     func(w io.Writer) error { return hostile[inventory.List](s).WriteTable(w, false) },
		"rails all": func(w io.Writer) error { return hostile[inventory.List](s).WriteTable(w, true) },
		"no rails":  func(w io.Writer) error { return inventory.List{Problems: []string{s}}.WriteTable(w, true) },
		"expect":    func(w io.Writer) error { return hostile[expect.List](s).WriteTable(w) },
		"read": func(w io.Writer) error {
			return read.WriteTable(w, hostile[[]read.Result](s), hostile[read.Beside](s), 0, true)
		},
		"storage": func(w io.Writer) error { return storage.WriteTable(w, hostile[[]storage.Result](s), true) },
		"nixlbench": func(w io.Writer) error {
			return nixl.WriteTable(w, hostile[nixl.Settings](s), hostile[[]nixl.Row](s), true)
		},
		"run":         func(w io.Writer) error { return hostile[record.Record](s).WriteTable(w, true) },
		"run compare": func(w io.Writer) error { return hostile[record.Comparison](s).WriteTable(w, true) },
		"ring": func(w io.Writer) error {
			return bench.WriteRing(w, bench.Ring([]result.RingResult{hostile[result.RingResult](s)},
				bench.RingOptions{Bytes: 1 << 20}), true)
		},
		"csv":          func(w io.Writer) error { return bench.WriteCSV(w, hostile[suite.Suite](s)) },
		"bench report": func(w io.Writer) error { return benchreport.Bench(hostile[suite.Suite](s)).WriteHTML(w) },
		"run report":   func(w io.Writer) error { return benchreport.Run(hostile[record.Record](s)).WriteHTML(w) },
		"compare report": func(w io.Writer) error {
			return benchreport.Compared(hostile[record.Comparison](s)).WriteHTML(w)
		},
		"check": func(w io.Writer) error {
			c := verdict.Criteria{Min: finding.Critical}
			_, err := io.WriteString(w, c.Judge(verdict.State{Found: []finding.Finding{raised}}).Text+"\n"+
				c.Judge(verdict.State{Unknown: s}).Text+"\n")
			return err
		},
		"error":    func(w io.Writer) error { writeError(w, errors.New(s)); return nil },
		"log":      func(w io.Writer) error { return logAll(w, s, "logfmt") },
		"log json": func(w io.Writer) error { return logAll(w, s, "json") },
		"page":     func(w io.Writer) error { return writePage(w, s) },
		"metrics": func(w io.Writer) error {
			m := &collector.Metric{Name: "x", Help: "X.", Kind: collector.Gauge,
				Labels: []string{"device", "reason", "comm"}}
			rows := table.New([]*collector.Metric{m}, nil)
			rows.Begin(nil)
			rows.Set(collector.Sample{Metric: m, Labels: []string{s, s, s}})
			rows.End()
			_, err := w.Write(rows.AppendText(nil))
			return err
		},
		"bundle": func(w io.Writer) error { return writeBundle(w, t.TempDir(), s) },
	}
	for _, outcome := range result.Outcomes() {
		r := hostile[result.Result](s)
		r.Outcome, r.Transport = outcome, result.RDMA
		all["bench "+string(outcome)] = func(w io.Writer) error {
			return bench.WriteTable(w, r, bench.Options{Color: true, Node: []finding.Finding{raised}})
		}
	}
	for name, there := range map[string]*facts.Facts{"doctor": nil, "doctor of two": new(hostile[facts.Facts](s))} {
		all[name] = func(w io.Writer) error {
			found := report.Examine(new(hostile[facts.Facts](s)), there, nil)
			found.AddUnread(s)
			found.AddPeerFailure(s, errors.New(s), s)
			found.Add([]finding.Finding{raised})
			return found.WriteText(w, report.Page{Color: true})
		}
	}
	blamed := fleet.Shown{Report: hostile[fleet.Report](s), Failed: []string{s}, LeftOut: hostile[[]fleet.Old](s)}
	all["fleet"] = func(w io.Writer) error { return blamed.WriteTable(w, true) }
	all["fleet drain"] = blamed.WriteDrain
	all["fleet page"] = blamed.WriteHTML
	drifted := hostile[fleet.Drift](s)
	all["fleet drift"] = func(w io.Writer) error { return drifted.WriteTable(w, true) }
	gated := hostile[gate.Report](s)
	all["fleet gate"] = func(w io.Writer) error { return gated.WriteTable(w, true) }
	reasons := hostile[why.Report](s)
	all["fleet why"] = func(w io.Writer) error { return reasons.WriteTable(w, true) }
	all["fleet gate page"] = gated.WriteHTML
	all["fleet gate drain"] = gated.WriteDrain
	all["fleet gate names"] = gated.WriteNames
	all["fleet state"] = func(w io.Writer) error {
		return fleet.NewShown(hostile[fleet.State](s), hostile[fleet.Answers](s)).WriteHTML(w)
	}
	return all
}

func logAll(w io.Writer, s, format string) error {
	c := common{log: promslog.Config{Writer: w, Level: promslog.NewLevel(), Format: promslog.NewFormat()}}
	if err := c.log.Format.Set(format); err != nil {
		return err
	}
	c.logger().Warn(s, "err", errors.New(s), "value", s) //nolint:sloglint // the text is what is tested
	return nil
}

func writePage(w io.Writer, s string) error {
	mux := http.NewServeMux()
	livepage.New(livepage.Options{Node: s, Notice: s, Version: s, Logger: slog.New(slog.DiscardHandler),
		Read: func(_ []string, view func(livepage.Reading, map[string]string)) {
			view(series(s), map[string]string{"rdma": s, "bond": s})
		},
		Peers: func() ([]livepage.Peer, bool) { return hostile[[]livepage.Peer](s), true },
		Exam:  func() livepage.Exam { return hostile[livepage.Exam](s) },
	}).Register(mux)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if answer.Code != http.StatusOK {
		return errors.New(answer.Body.String())
	}
	_, err := w.Write(answer.Body.Bytes())
	return err
}

// writeBundle writes the contents of a bundle's files.
func writeBundle(w io.Writer, dir, s string) error {
	b := bundle.New("bundle", time.Unix(1e9, 0), maxBundle)
	b.Add("flags.txt", "flags", func(w io.Writer) error {
		_, _ = io.WriteString(w, s)
		return errors.New(s)
	})
	b.Add("facts.json", "facts", func(w io.Writer) error { return writeJSON(w, hostile[facts.Facts](s)) })
	b.Note("peer %s: %v", s, errors.New(s))
	path := filepath.Join(dir, "bundle")
	if err := b.Create(path); err != nil {
		return err
	}
	packed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	for files := tar.NewReader(unpacked); ; {
		if _, err := files.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := io.Copy(w, files); err != nil { //nolint:gosec // the test wrote it
			return err
		}
	}
}

var colours = regexp.MustCompile("\x1b\\[[0-9]{0,2}m")

// FuzzPrinters: for any text from a driver, peer, Prometheus or file, no output contains a character that moves the
// cursor, reverses the line or is invisible, or the password of a URL.
func FuzzPrinters(f *testing.F) {
	const password = "SWORDFISH"
	for _, s := range []string{"mlx5_0", "\x1b]0;pwn\x07\x1b[2J\x9b31m", "a\nb\r\n\tc\v\f", "nul\x00nul",
		"\xff\xfe\xc3(",
		"\u202egnp.exe\u2066x\u2069", "\u200b\u00ad\ufeff\u115f", "\u2028\u2029\u0085", strings.Repeat("é", 600),
		"-rf /", "'; reboot; '", `"<script>`, "$(reboot)", "# x", "://@", "a@b:c/d", "\u00a0\u0300"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, password) {
			return
		}
		for name, write := range printers(t, s+"http://bob:"+password+"/@@h:1"+s) {
			var out bytes.Buffer
			if err := write(&out); err != nil {
				t.Errorf("%s of %q: %v", name, s, err)
			}
			text := colours.ReplaceAllString(out.String(), "")
			if strings.Contains(text, password) {
				t.Errorf("%s of %q has the password: %s", name, s, around(text, strings.Index(text, password)))
			}
			html := strings.Contains(text, "<html")
			for i, c := range text {
				if c != '\n' && !terminal.Shown(c) && (!html || c != '\u00a0' && c != '\t') {
					t.Errorf("%s of %q has %U: %q", name, s, c, around(text, i))
					break
				}
			}
		}
	})
}

func around(text string, at int) string { return text[max(at-60, 0):min(at+60, len(text))] }
