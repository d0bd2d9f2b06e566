package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page that is open in its own Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	said     []string // lines of the console
	requests []string // requested addresses
}

// requireEnv makes a missing Chromium an error instead of a skip, as in CI.
const requireEnv = "RAILSCOPE_REQUIRE_CHROMIUM"

func newTab(t *testing.T, opts ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal("there is no chromium, and " + requireEnv + " is set: apt-get install chromium")
		}
		t.Skip("there is no chromium on this machine: make page installs it")
	}
	opts = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(time.Minute)), opts...)
	alloc, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() { cancel(); stop() })
	b := &tab{t: t, ctx: ctx}
	b.check(chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)))
	b.check(chromedp.Listen(ctx, b.note))
	for _, err := range []error{
		second(chromedp.Call(ctx, network.Enable, network.EnableParams{})),
		second(chromedp.Call(ctx, log.Enable, cdp.Empty{})),
		second(chromedp.Call(ctx, runtime.Enable, cdp.Empty{})),
	} {
		b.check(err)
	}
	return b
}

func second[T any](_ T, err error) error { return err }

func (b *tab) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// note records what a person would see in the developer tools.
func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprintf("console.%s", e.Type))
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	}
}

func (b *tab) open(address string) {
	b.t.Helper()
	b.check(chromedp.Do(b.ctx, chromedp.Navigate(address)))
}

// scheme switches the page to light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: name}}})
	b.check(err)
}

func (b *tab) width(pixels int64) {
	b.t.Helper()
	b.check(chromedp.Do(b.ctx, chromedp.EmulateViewport(pixels, 800)))
}

// value evaluates an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true, at most for most.
func (b *tab) until(what, expression string, most time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		if value[bool](b, expression) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within %v: %s\n%s", most, what, value[string](b, `document.body.innerText`))
		}
	}
}

func (b *tab) live() {
	b.t.Helper()
	b.until("the page is live",
		`!!document.querySelector('#head .live') && !document.querySelector('#head .live').hidden`, 15*time.Second)
}

// clean fails if the console has lines other than the allowed ones, or if a request went to another host.
func (b *tab) clean(host string, allowed ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
said:
	for _, line := range b.said {
		for _, a := range allowed {
			if strings.Contains(line, a) {
				continue said
			}
		}
		b.t.Errorf("the console says: %s", line)
	}
	for _, address := range b.requests {
		if u, err := url.Parse(address); err != nil || u.Host != host {
			b.t.Errorf("the page asked for %s, which is not of %s", address, host)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was seen: nobody looked")
	}
}
