package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfstest"
)

// limited starts railscope with this limit of file descriptors.
func limited(t *testing.T, descriptors int, args ...string) *running {
	t.Helper()
	args = append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), os.Args[0],
		"--web.listen-address=127.0.0.1:0", "--log.format=json"}, args...)
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), "RAILSCOPE_TEST_MAIN=1")
	r := follow(t, cmd)
	address := r.line(t, `"address":"([^"]+)"`)
	r.line(t, `"msg":"(Serving)"`)
	r.url = "http://" + address
	return r
}

// seriesOf returns the names and labels of a scrape.
func seriesOf(body string) map[string]bool {
	series := map[string]bool{}
	for line := range strings.Lines(body) {
		if name, _, found := strings.Cut(line, " "); found && !strings.HasPrefix(line, "#") && !strings.Contains(line,
			"sampler") && !strings.Contains(line, "_utilization_") {
			series[name] = true
		}
	}
	return series
}

// TestFewDescriptors: with fewer file descriptors than device files, scrapes are answered completely, and
// connections that take the remaining descriptors do no lasting harm.
func TestFewDescriptors(t *testing.T) {
	sys := t.TempDir()
	if err := sysfstest.WriteMlx5(sys, 11); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--path.sysfs=" + sys, "--no-source.gpu"}
	_, all := start(t, nil, flags...).get(t, "/metrics")
	few := limited(t, 256, flags...)
	said := few.line(t, `"msg":"(File descriptors are scarce[^}]*)`)
	if !strings.Contains(said, `"limit":256`) || !strings.Contains(said, "LimitNOFILE") {
		t.Errorf("it said %s", said)
	}
	check := func(when string) {
		t.Helper()
		_, body := few.get(t, "/metrics")
		got := seriesOf(body) // more series than at first: balance is judged after 10 s
		for series := range seriesOf(all) {
			if !got[series] {
				t.Errorf("%s: %s is missing", when, series)
			}
		}
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "railscope_source_success") && !strings.HasSuffix(line, " 1\n") {
				t.Errorf("%s: %s", when, line)
			}
		}
	}
	for range 3 {
		check("at first")
	}
	var held []net.Conn
	for range 300 {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, addr(t, few.url))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	check("while somebody takes all connections that it can")
	for _, c := range held {
		c.Close()
	}
	time.Sleep(100 * time.Millisecond)
	check("afterwards")
	if code := few.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func addr(t *testing.T, url string) *net.TCPAddr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
