package resident

import (
	"bytes"
	"os"
	"strconv"
	"testing"
)

// rssFile is how much of mapped files is resident, in KiB (proc(5), RssFile).
func rssFile(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	_, after, _ := bytes.Cut(status, []byte("RssFile:"))
	n, err := strconv.Atoi(string(bytes.Fields(after)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDropStartup: less of the program is resident, and it runs on, its constants
// and what relocation changed included.
func TestDropStartup(t *testing.T) {
	before := rssFile(t)
	if err := DropStartup(); err != nil {
		t.Fatal(err)
	}
	after := rssFile(t)
	t.Logf("mapped files: %d KiB resident, %d before", after, before)
	if after >= before {
		t.Errorf("%d KiB of mapped files are resident, not fewer than the %d before", after, before)
	}
	if err := DropStartup(); err != nil { // again, from pages that were mapped anew
		t.Fatal(err)
	}
}
