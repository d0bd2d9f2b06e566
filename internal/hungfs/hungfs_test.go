package hungfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// TestHang: a read waits until it is released; a listing does not.
func TestHang(t *testing.T) {
	dir := t.TempDir()
	fs := Mount(t, dir, map[string]string{"b": "2\n", "a": "1\n"})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "a" {
		t.Fatal(entries, err)
	}
	got := make(chan string, 1)
	go func() {
		b, err := os.ReadFile(filepath.Join(dir, "b"))
		got <- string(b) + "," + errText(err)
	}()
	for deadline := time.Now().Add(10 * time.Second); fs.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody reads")
		}
	}
	select {
	case s := <-got:
		t.Fatalf("the read came back with %q", s)
	default:
	}
	fs.Release()
	if s := <-got; s != "2\n," {
		t.Errorf("after the release: %q", s)
	}
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
