package browser

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "where TestPreview of exporter/page serves, such as http://localhost:8080")

// TestPictures makes the pictures in docs/img, of simulated nodes.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("makes no pictures without -pictures ADDRESS")
	}
	for _, p := range []struct {
		file, path, scheme string
		width              int64
	}{
		{"page-light.png", "/few/", "light", 1280},
		{"page-dark.png", "/wounded/", "dark", 1280},
		{"page-phone.png", "/wounded/", "light", 375},
	} {
		b := newTab(t)
		b.width(p.width)
		b.scheme(p.scheme)
		b.open(*pictures + p.path)
		b.live()
		time.Sleep(3 * time.Second) // the animation of bars ends
		png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		b.check(err)
		if err := os.WriteFile(filepath.Join("../../docs/img", p.file), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
