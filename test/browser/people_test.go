package browser

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// probing writes a configuration with a peer that does not exist, so that the page has failed rounds, and more
// lines.
func probing(t *testing.T, more ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "railscope.yml")
	if err := os.WriteFile(file,
		[]byte("probe:\n  peers: [127.0.0.1:9]\n  interval: 1s\n  insecure: true\n"+strings.Join(more, "\n")),
		0o600); err != nil {
		t.Fatal(err)
	}
	return "--config.file=" + file
}

// TestWithoutJavaScript: the page is complete, has the values of /metrics, and reloads itself.
func TestWithoutJavaScript(t *testing.T) {
	t.Parallel() // the test mostly waits
	m := newMachine(t, "hgx")
	e, b := serve(t, m, probing(t)), newTab(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	m.move(true)
	time.Sleep(4 * time.Second)
	b.open(e.url + "/")
	text := value[string](b, `document.body.innerText`)
	for _, want := range []string{"8 of 8 busy", "rail 7", "mlx5_7", "PCIe Gen5 ×16", "400\u00a0Gb/s",
		"no bond on this node", "127.0.0.1:9", "peer_unreachable", "reloads every 10 s", "Metrics"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has not %q:\n%s", want, text)
		}
	}
	if !value[bool](b, `document.querySelector('#head .live').hidden && document.getElementById('lost').hidden`) {
		t.Error("it calls itself live, or lost")
	}
	if got := value[int](b, `document.querySelectorAll('.lane .spark .line').length`); got != 16 {
		t.Errorf("%d lines are drawn, want one for each rail and direction", got)
	}
	before := value[string](b, `document.querySelector('#head time').textContent`)
	b.until("it is loaded anew",
		`!!document.querySelector('#head time') && document.querySelector('#head time').textContent !== '`+before+`'`,
		20*time.Second)
}

// TestWidths: nothing is wider than the screen, including that of a small phone, and no name overlaps its
// neighbour, even at the maximum length of a rail's name.
func TestWidths(t *testing.T) {
	long := "rails: {names: {" + strings.Repeat("name-of-a-rail-", 2) + "en: mlx5_0/1}}"
	for _, capture := range []string{"hgx", "one-rail-dead", "bonded", "no-rdma"} {
		m := newMachine(t, capture)
		if capture == "hgx" {
			m.set("who knows", "class/infiniband/mlx5_1/ports/1/state") // the longest word for a state
		}
		e, b := serve(t, m, probing(t, long)), newTab(t)
		b.open(e.url + "/")
		b.live()
		b.until("a round is there", `!!document.querySelector('.rounds')`, 15*time.Second)
		value[bool](b, `document.querySelectorAll('details').forEach(d => d.open = true), true`)
		for _, width := range []int64{320, 375, 768, 1280, 1920} {
			b.width(width)
			if wide := value[[]string](b,
				`[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > `+
					`document.documentElement.clientWidth + 1 && getComputedStyle(e).clipPath === 'none' && `+
					`!e.closest('thead, caption, .skip')).map(e => e.outerHTML.slice(0, 120))`); len(wide) > 0 ||
				value[bool](b, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
				t.Errorf("%s at %d px: wider than the screen: %q", capture, width, wide)
			}
			if over := value[[]string](b,
				`[...document.querySelectorAll('h3, th, td, .state')].filter(e => e.scrollWidth > e.clientWidth + `+
					`1 && !e.closest('thead')).map(e => e.outerHTML.slice(0, 120))`); len(over) > 0 {
				t.Errorf("%s at %d px: wider than its place: %q", capture, width, over)
			}
		}
	}
}

// contrast returns every text and sign with less contrast than WCAG 2 AA requires: 4.5 for text, 3 for large text
// and signs.
const contrast = `(() => {
	const rgba = (s) => { const m = s.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] === undefined ? 1 : m[3]]; };
	const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const light = (c) => { const [r, g, b] = c.map(v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
	const back = (e) => { const list = []; for (; e; e = e.parentElement) list.push(rgba(getComputedStyle(e).backgroundColor)); return list.reverse().reduce((b, c) => over(c, b), [255, 255, 255, 1]); };
	const bad = [];
	let n = 0;
	const test = (e, color, least) => { n++; const b = back(e), r = ratio(over(rgba(color), b), b); if (r < least) bad.push(r.toFixed(2) + ' < ' + least + ': ' + (e.textContent.trim().slice(0, 40) || e.outerHTML.slice(0, 60))); };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let t = walk.nextNode(); t; t = walk.nextNode()) {
		const e = t.parentElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
		if (!t.data.trim() || !r.width || e.closest('noscript, script')) continue;
		const size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.66 && s.fontWeight >= 700);
		test(e, s.color, large ? 3 : 4.5);
	}
	for (const e of document.querySelectorAll('.icon')) test(e, getComputedStyle(e).stroke, 3);
	for (const e of document.querySelectorAll('.spark .line')) test(e.closest('svg'), getComputedStyle(e).stroke, 3);
	for (const e of document.querySelectorAll('.bar .fill, .bar .peak, .strip rect')) test(e.closest('svg'), getComputedStyle(e).fill, 3);
	return {Bad: [...new Set(bad)], N: n};
})()`

// TestContrast: everything is readable in light and in dark.
func TestContrast(t *testing.T) {
	for _, capture := range []string{"one-rail-dead", "bonded", "hgx"} {
		m := newMachine(t, capture)
		m.move(capture == "hgx")
		e, b := serve(t, m, probing(t)), newTab(t)
		b.open(e.url + "/")
		b.live()
		b.until("a round is there", `!!document.querySelector('.rounds')`, 15*time.Second)
		value[bool](b, `document.querySelectorAll('details').forEach(d => d.open = true), `+
			`document.getElementById('lost').hidden = false, document.getElementById('lost').textContent = 'Not `+
			`connected', true`)
		back := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			got := value[struct {
				Bad []string
				N   int
			}](b, contrast)
			if got.N < 60 {
				t.Errorf("%s, %s: only %d texts were looked at", capture, scheme, got.N)
			}
			for _, bad := range got.Bad {
				t.Errorf("%s, %s: %s", capture, scheme, bad)
			}
			back[scheme] = value[string](b, `getComputedStyle(document.body).backgroundColor`)
		}
		if back["light"] == back["dark"] {
			t.Error("light and dark are the same")
		}
	}
}

// TestKeyboard: every control is reached by Tab, shows the focus, and works by Enter. An opened part stays open
// while values change.
func TestKeyboard(t *testing.T) {
	e, b := serve(t, newMachine(t, "one-rail-dead"), probing(t)), newTab(t)
	b.open(e.url + "/")
	b.live()
	b.until("doctor and a round are there",
		`!!document.querySelector('.rounds') && document.querySelectorAll('.findings pre').length > 1`, 45*time.Second)
	fixes := func() int { return value[int](b, `document.querySelectorAll('.findings pre').length`) }
	before := fixes()
	press := func(key string) {
		t.Helper()
		b.check(chromedp.Do(b.ctx, chromedp.KeyEvent(key)))
	}
	const active = `(() => { const e = document.activeElement, s = getComputedStyle(e); return [e.tagName, ` +
		`e.textContent.trim().slice(0, 30), s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 ? 'seen' ` +
		`: 'not seen'].join('|') })()`
	var order []string
	for range 40 {
		press("\t")
		at := value[string](b, active)
		if strings.HasPrefix(at, "BODY") {
			break
		}
		order = append(order, at)
		if strings.HasPrefix(at, "SUMMARY") {
			press("\r")
		}
	}
	var tags []string
	for _, at := range order {
		if strings.HasSuffix(at, "not seen") {
			t.Errorf("nobody sees that the focus is on %s", at)
		}
		tags = append(tags, strings.Split(at, "|")[0])
	}
	want := func(fixes int) []string {
		return slices.Concat([]string{"A", "SUMMARY"}, slices.Repeat([]string{"PRE"}, fixes), []string{"A", "A", "A", "A"})
	}
	if !slices.Equal(tags, want(before)) && !slices.Equal(tags, want(fixes())) { // one may appear meanwhile
		t.Errorf("Tab goes to %q, want %q", order, want(before))
	}
	rounds := value[int](b, `document.querySelectorAll('.rounds tbody tr').length`)
	b.until("rounds come in", fmt.Sprintf(`document.querySelectorAll('.rounds tbody tr').length > %d`, rounds),
		15*time.Second)
	if !value[bool](b, `document.querySelector('.past details').open`) {
		t.Error("what was opened by Enter closed when values came")
	}
	b.open(e.url + "/")
	press("\t")
	press("\r")
	if at := value[string](b, `document.activeElement.id + location.hash`); at != "main#main" {
		t.Errorf("the link over the head leads to %s", at)
	}
	if got := value[[]string](b,
		`[...document.querySelectorAll('h1, h2, h3')].map(h => h.tagName)`); got[0] != "H1" || slices.Index(got,
		"H2") != 1 || !slices.Contains(got, "H3") {
		t.Errorf("headings: %v", got)
	}
	if got := value[int](b, `document.querySelectorAll('main').length + `+
		`document.querySelectorAll('section[aria-labelledby]:not([hidden])').length + `+
		`document.querySelectorAll('nav[aria-label]').length + document.querySelectorAll('footer').length`); got != 8 {
		t.Errorf("%d landmarks, want 8", got)
	}
	host, _ := url.Parse(e.url)
	b.clean(host.Host)
}
