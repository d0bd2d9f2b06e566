package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/railscope/railscope/internal/config"
)

// TestDigest: files with the same bytes have the same digest, others another one, and no file has none.
func TestDigest(t *testing.T) {
	digest := func(text string) string {
		path := filepath.Join(t.TempDir(), "railscope.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest
	}
	none, err := config.Load("")
	if err != nil || none.Digest != "" {
		t.Errorf("%v, %q", err, none.Digest)
	}
	a, b := digest("rails: {include: a}"), digest("rails: {include: b}")
	if len(a) != 12 || a == b || a != digest("rails: {include: a}") {
		t.Errorf("%q %q", a, b)
	}
}
