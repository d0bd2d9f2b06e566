package exporter

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/sysfstest"
)

// knows is a Reading that records queries for rows and labels that do not exist.
type knows struct {
	page.Reading
	missing *[]string
}

func (k knows) Each(row string, labels []string, each func([]string, float64)) bool {
	ok := k.Reading.Each(row, labels, each)
	if !ok && !slices.Contains(*k.missing, row) {
		*k.missing = append(*k.missing, row)
	}
	return ok
}

// TestPageKnowsRows: every row and label that the page queries exists. A misspelt name would only be a value that
// is always missing.
func TestPageKnowsRows(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/hgx.txtar")
	s := everySource(t, root)
	o := page.Options{Metrics: "/metrics", Logger: slog.New(slog.DiscardHandler)}
	var missing []string
	o.Read = func(names []string, f func(page.Reading, map[string]string)) {
		s.Update(names, 0, func(series *table.Table, failed map[string]string) { f(knows{series, &missing}, failed) })
	}
	p := page.New(o)
	defer p.Close()
	mux := http.NewServeMux()
	p.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), `data-rail="7"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(missing) > 0 {
		t.Errorf("the page asks for what no table has: %q", missing)
	}
}
