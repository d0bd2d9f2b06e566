//go:build race

package pattern

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRaces: the race detector still sees two that use one buffer.
func TestRaces(t *testing.T) {
	const variable = "RAILSCOPE_TEST_RACE"
	buf := make([]byte, 4096)
	uses := map[string]func(){
		"fill":  func() { Fill(buf, 1, 0) },
		"check": func() { Check(buf, 1, 0) },
	}
	if use, ok := uses[os.Getenv(variable)]; ok {
		done := make(chan struct{})
		go func() { use(); close(done) }()
		buf[2048] = 1
		<-done
		return
	}
	for name := range uses {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRaces$", "-test.count=1")
		cmd.Env = append(os.Environ(), variable+"="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "WARNING: DATA RACE") {
			t.Errorf("%s: %v, no race seen\n%s", name, err, out)
		}
	}
}
