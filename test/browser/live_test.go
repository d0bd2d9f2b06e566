package browser

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shown is a value on the page, with its rail and metric.
type shown struct{ Rail, Metric, Value string }

// figures returns all values of the lanes.
func (b *tab) figures() (list []shown) {
	b.t.Helper()
	return value[[]shown](b, `[...document.querySelectorAll('[data-rail] data[data-metric]')].map(d => ({Rail: `+
		`d.closest('[data-rail]').dataset.rail, Metric: d.dataset.metric, Value: d.value}))`)
}

// TestValuesEqualMetrics: the values of the lanes equal those of /metrics, to the last digit.
func TestValuesEqualMetrics(t *testing.T) {
	t.Parallel() // the test mostly waits
	m := newMachine(t, "hgx")
	e, b := serve(t, m), newTab(t)
	b.open(e.url + "/")
	b.live()
	m.move(true)
	b.until("traffic is shown", `document.querySelector('[data-now=transmit]').textContent.includes('Gb/s')`,
		15*time.Second)
	m.move(false)
	time.Sleep(6 * time.Second) // slow sources are read every 5 s
	figures, series := b.figures(), e.series()
	checked := map[string]int{}
	for _, f := range figures {
		var is []float64
		for line, v := range series {
			rail, kind := fmt.Sprintf(`rail=%q`, f.Rail), !strings.Contains(line, "kind=") || strings.Contains(line,
				`kind="active"`) || strings.Contains(line, `kind="nic"`)
			if strings.HasPrefix(line, "railscope_"+f.Metric+"{") && strings.Contains(line, rail) && kind {
				is = append(is, v)
			}
		}
		v, err := strconv.ParseFloat(f.Value, 64)
		if err != nil || len(is) != 1 || is[0] != v {
			t.Errorf("rail %s, %s: the page has %s, /metrics %v", f.Rail, f.Metric, f.Value, is)
		}
		checked[f.Metric]++
	}
	want := []string{"netdev_carrier_changes_total", "pcie_link_transfers_per_second", "pcie_link_width_lanes",
		"port_mtu_bytes", "port_rate_bytes_per_second", "port_receive_bytes_total", "port_transmit_bytes_total",
		"rail_capacity_bytes_per_second", "rail_expected_bytes_per_second"}
	if got := slices.Sorted(maps.Keys(checked)); !slices.Equal(got, want) {
		t.Errorf("figures on the page: %v, want %v", got, want)
	}
	for metric, n := range checked {
		if n != 8 {
			t.Errorf("%s: %d figures, want one of each of 8 rails", metric, n)
		}
	}
	host, _ := url.Parse(e.url)
	b.clean(host.Host)
}

// TestFollowsAChange: a change of the node appears on the page within two seconds. The best of three tries counts,
// because the machine of the tests may be busy.
func TestFollowsAChange(t *testing.T) {
	m := newMachine(t, "hgx")
	e, b := serve(t, m), newTab(t)
	b.open(e.url + "/")
	b.live()
	state := []string{"class/infiniband/mlx5_3/ports/1/state"}
	// took returns when the page first showed the change, by the page's own clock.
	took := func(what, expression string, change func()) time.Duration {
		value[bool](b, `(() => { window.seen = 0; const look = () => { if (!window.seen && (`+expression+
			`)) window.seen = Date.now(); };
			new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true}); return true })()`)
		start := time.Now()
		change()
		b.until(what, `window.seen > 0`, 15*time.Second)
		return time.UnixMilli(value[int64](b, `window.seen`)).Sub(start)
	}
	best := map[string]time.Duration{}
	note := func(what string, d time.Duration) {
		t.Logf("%s: %v", what, d.Round(time.Millisecond))
		if was, ok := best[what]; !ok || d < was {
			best[what] = d
		}
	}
	limit := func(what string) time.Duration {
		if what == "traffic ends" {
			// a mean of the last one to two seconds: it decreases at once, and becomes 0 later
			return 3500 * time.Millisecond
		}
		return 2 * time.Second
	}
	late := func() (list []string) {
		for what, d := range best {
			if d > limit(what) {
				list = append(list, fmt.Sprintf("%s: the page shows it after %v at best", what, d))
			}
		}
		return list
	}
	for try := 0; try == 0 || try < 3 && late() != nil; try++ {
		note("a port goes down",
			took("rail 3 is down",
				`document.querySelector('h1').textContent.includes('rail 3 is down') && `+
					`document.querySelector('[data-rail="3"]').classList.contains('bad')`,
				func() { m.set("1: DOWN\n", state...) }))
		note("a port comes up",
			took("rail 3 is up",
				`!document.querySelector('h1').textContent.includes('is down') && `+
					`document.querySelector('[data-rail="3"]').classList.contains('good')`,
				func() { m.set("4: ACTIVE\n", state...) }))
		note("traffic begins",
			took("traffic", `!document.querySelector('[data-rail="0"] [data-now=receive]').textContent.startsWith('0')`,
				func() { m.move(true) }))
		note("traffic ends", took("idle",
			`document.querySelector('[data-rail="0"] [data-now=receive]').textContent.startsWith('0')`,
			func() { m.move(false) }))
		time.Sleep(time.Second)
	}
	for _, what := range late() {
		t.Error(what)
	}
}

// TestSurvivesARestart: when the exporter ends, the page says so and shows the age of its values. When it is back,
// the page continues without a reload, unless the exporter has another version.
func TestSurvivesARestart(t *testing.T) {
	m := newMachine(t, "one-rail-dead")
	e, b := serve(t, m), newTab(t)
	b.open(e.url + "/")
	b.live()
	value[bool](b, `window.same = true`)
	if took := e.stop(syscall.SIGTERM); took > 5*time.Second {
		t.Errorf("with a page open, the end of the exporter took %v", took)
	}
	b.until("the page says that it is not connected",
		`!document.getElementById('lost').hidden && /^Not connected since \d\d:\d\d:\d\d: .*Values from `+
			`\d\d:\d\d:\d\d\.$/.test(document.getElementById('lost').textContent)`, 15*time.Second)
	if !value[bool](b, `document.querySelector('#head .live').hidden && `+
		`document.querySelector('h1').textContent.includes('rail 1 is down')`) {
		t.Error("the last values are gone, or the page calls itself live")
	}
	time.Sleep(3 * time.Second)
	m.set("4: ACTIVE\n", "class/infiniband/mlx5_1/ports/1/state")
	e.start()
	b.live()
	b.until("the values are new", `!document.querySelector('h1').textContent.includes('is down')`, 10*time.Second)
	if !value[bool](b, `window.same === true && document.getElementById('lost').hidden`) {
		t.Error("the page was loaded anew, or still says that it is not connected")
	}
	value[bool](b, `document.documentElement.dataset.layout = 'of yesterday', true`)
	b.until("another version loads the page anew", `window.same !== true && document.readyState === 'complete'`,
		10*time.Second)
	b.live()
	host, _ := url.Parse(e.url)
	b.clean(host.Host, "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE",
		"ERR_CONNECTION_RESET")
}

// TestHiddenPageAsksNothing: a hidden page closes its stream, and opens one when it is visible again.
func TestHiddenPageAsksNothing(t *testing.T) {
	t.Parallel() // the test mostly waits
	e, b := serve(t, newMachine(t, "one-rail-dead")), newTab(t)
	b.open(e.url + "/")
	b.live()
	hide := func(hidden bool) {
		value[bool](b, fmt.Sprintf(`Object.defineProperty(document, 'hidden', {value: %v, configurable: true}), `+
			`document.dispatchEvent(new Event('visibilitychange')), true`, hidden))
	}
	hide(true)
	time.Sleep(2 * time.Second)
	before := value[string](b, `document.querySelector('#head time').textContent`)
	time.Sleep(3 * time.Second)
	if after := value[string](b, `document.querySelector('#head time').textContent`); after != before {
		t.Errorf("hidden, and yet it went from %s to %s", before, after)
	}
	hide(false)
	b.until("it goes on", `document.querySelector('#head time').textContent !== '`+before+`'`, 10*time.Second)
	b.live()
}

// TestTenPages reports the cost of open pages in processor time. Package exporter/page tests that ten pages are
// rendered and read once.
func TestTenPages(t *testing.T) {
	m := newMachine(t, "hgx")
	m.move(true)
	e := serve(t, m)
	const seconds = 5
	cost := func(pages int) float64 {
		ctx, cancel := context.WithCancel(t.Context())
		var open sync.WaitGroup
		var mu sync.Mutex
		events, bytes := 0, 0
		for range pages {
			open.Go(func() {
				n, size, err := e.stream(ctx)
				mu.Lock()
				defer mu.Unlock()
				events, bytes = events+n, bytes+size
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(3 * time.Second) // the first event, and doctor's examination
		before := e.series()["process_cpu_seconds_total"]
		time.Sleep(seconds * time.Second)
		used := (e.series()["process_cpu_seconds_total"] - before) / seconds
		cancel()
		open.Wait()
		t.Logf("%d pages: %.2f %% of a core, %d events, %d KB a page and second", pages, 100*used, events,
			bytes/max(pages, 1)/1000/(seconds+3))
		if want := pages * seconds; events < want {
			t.Errorf("%d pages got %d events in %d s, want %d", pages, events, seconds+3, want)
		}
		return used
	}
	none, one, ten := cost(0), cost(1), cost(10)
	t.Logf("a page costs %.2f %%, ten cost %.2f %% of a core", 100*(one-none), 100*(ten-none))
	if ten-none > 0.1 {
		t.Errorf("ten pages cost %.1f %% of a core: five times what they may", 100*(ten-none))
	}
}
