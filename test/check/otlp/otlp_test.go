package otlp

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/internal/sysfstest"
)

// receiver is Prometheus' OTLP endpoint with a translation strategy for names.
func receiver(t *testing.T, strategy otlptranslator.TranslationStrategyOption) (*teststorage.TestStorage, string) {
	t.Helper()
	stored := teststorage.New(t)
	cfg := config.DefaultConfig
	cfg.OTLPConfig.TranslationStrategy = strategy
	handler := remote.NewOTLPWriteHandler(promslog.NewNopLogger(), prometheus.NewRegistry(), stored,
		func() config.Config { return cfg }, remote.OTLPOptions{LookbackDelta: 5 * time.Minute})
	mux := http.NewServeMux()
	mux.Handle("POST /api/v1/otlp/v1/metrics", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return stored, server.URL + "/api/v1/otlp"
}

// last returns the last value of every series with the label instance; the result lacks the labels instance and
// job.
func last(t *testing.T, stored *teststorage.TestStorage) map[string]float64 {
	t.Helper()
	q, err := stored.Querier(0, time.Now().Add(time.Hour).UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	got := map[string]float64{}
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "instance", "node-a"),
		labels.MustNewMatcher(labels.MatchEqual, "job", "railscope"))
	for set.Next() {
		one := set.At()
		name := labels.NewBuilder(one.Labels()).Del("instance", "job").Labels().String()
		for it := one.Iterator(nil); it.Next() == chunkenc.ValFloat; {
			_, got[name] = it.At()
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(got, func(series string, _ float64) bool { // series of the resource, made by Prometheus
		return strings.HasPrefix(series, `{__name__="target_info"`)
	})
	return got
}

// scraped returns the series of an exposition with the names that Prometheus gives them.
func scraped(t *testing.T, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url) //nolint:gosec,noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for p := textparse.NewPromParser(body, labels.NewSymbolTable(), false); ; {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return got
		} else if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			p.Labels(&l)
			_, _, v := p.Series()
			got[labels.New(notEmpty(l)...).String()] = v
		}
	}
}

// notEmpty returns the labels that Prometheus stores.
func notEmpty(l labels.Labels) (list []labels.Label) {
	l.Range(func(one labels.Label) {
		if one.Value != "" {
			list = append(list, one)
		}
	})
	return list
}

// moving are the metrics whose values differ between a push and a scrape.
var moving = []string{"process_", "go_", "railscope_otlp_", "railscope_scrape_seconds", "railscope_source_read_seconds",
	"railscope_sampler_", "railscope_rail_utilization_ratio"}

func isMoving(series string) bool {
	name := strings.TrimPrefix(series, `{__name__="`)
	for _, prefix := range moving {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// TestSameAsScrape: the program pushes a captured machine with eight rails to Prometheus. For each translation
// strategy, Prometheus then has the names, labels and values of a scrape.
func TestSameAsScrape(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "railscope")
	build := exec.Command("go", "build", "-o", program, "./cmd/railscope")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, strategy := range []otlptranslator.TranslationStrategyOption{otlptranslator.UnderscoreEscapingWithSuffixes,
		otlptranslator.UnderscoreEscapingWithoutSuffixes, otlptranslator.NoUTF8EscapingWithSuffixes,
		otlptranslator.NoTranslation} {
		t.Run(string(strategy), func(t *testing.T) {
			stored, endpoint := receiver(t, strategy)
			root := sysfstest.Unpack(t, "../../../exporter/testdata/hgx.txtar")
			address := freeAddress(t)
			cmd := exec.CommandContext(t.Context(), program, "serve", "--web.listen-address="+address,
				"--path.sysfs="+root.Sys(), "--path.procfs="+root.Proc(), "--path.rootfs="+root.Dir,
				"--node.name=node-a", "--otlp.endpoint="+endpoint, "--otlp.interval=1s")
			var log strings.Builder
			cmd.Stderr = &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if strings.Contains(log.String(), "OTLP") {
					t.Error(log.String())
				}
			}()
			wait(t, stored, 1) // the first push that counts an earlier one
			url := "http://" + address + "/metrics"
			want := scraped(t, url)
			// The push after the next began after this scrape. A series may appear meanwhile, so a second scrape is
			// needed.
			pushed := wait(t, stored, want[pushes]+1)
			later := scraped(t, url)
			for series := range want {
				if _, ok := pushed[series]; !ok {
					t.Errorf("%s is not pushed", series)
				}
			}
			for series := range pushed {
				if _, ok := later[series]; !ok {
					t.Errorf("%s is pushed and not exported", series)
				}
			}
			isNew := func(series string, _ float64) bool { _, ok := want[series]; return !ok }
			maps.DeleteFunc(pushed, isNew)
			maps.DeleteFunc(want, func(series string, _ float64) bool { return isMoving(series) })
			maps.DeleteFunc(pushed, func(series string, _ float64) bool { return isMoving(series) })
			if len(want) < 400 {
				t.Errorf("%d series only", len(want))
			}
			if diff := cmp.Diff(want, pushed); diff != "" {
				t.Error(diff)
			}
			t.Log(len(want), "series are equal")
		})
	}
}

// pushes is the series that counts pushes; a push contains the number of earlier ones.
const pushes = `{__name__="railscope_otlp_pushes_total", result="success"}`

// wait returns the stored series once a push has arrived that counts that many earlier ones.
func wait(t *testing.T, stored *teststorage.TestStorage, count float64) map[string]float64 {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got := last(t, stored); got[pushes] >= count {
			return got
		}
	}
	t.Fatalf("no push that counts %v before it within 30 s", count)
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
