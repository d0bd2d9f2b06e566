package main

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var scale = flag.Bool("scale", false, "measure fleet blame and fleet drift on 16,384 nodes")

// Nodes of the fleet that TestScale measures, its rails, and the peers that each node asks.
const (
	scaleNodes = 16384
	scaleRails = 8
	scalePeers = 4
)

// answerScale answers questions about the fleet as Prometheus does. Rail 3 of node 100 is dead, rail 5 of node 7,000 is
// slow.
func answerScale(w http.ResponseWriter, r *http.Request) {
	question, random := r.FormValue("query"), rand.New(rand.NewPCG(1, 2))
	var wanted map[string]bool // nil: all
	if m := regexp.MustCompile(`instance=~"([^"]*)"`).FindStringSubmatch(question); m != nil {
		wanted = map[string]bool{}
		for instance := range strings.SplitSeq(m[1], "|") {
			wanted[strings.ReplaceAll(instance, `\\`, "")] = true
		}
	}
	out := bufio.NewWriterSize(w, 1<<20)
	defer out.Flush()
	out.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	first := true
	add := func(labels string, v float64) {
		if !first {
			out.WriteByte(',')
		}
		first = false
		out.WriteString(`{"metric":{"cluster":"a",`)
		out.WriteString(labels)
		out.WriteString(`},"value":[1800000000,"`)
		out.Write(strconv.AppendFloat(out.AvailableBuffer(), v, 'g', -1, 64))
		out.WriteString(`"]}`)
	}
	found := map[string]bool{}
	has := func(metric string) bool {
		is, known := found[metric]
		if !known {
			is = strings.Contains(question, metric)
			found[metric] = is
		}
		return is
	}
	for from := range scaleNodes {
		instance := fmt.Sprintf("gpu-%05d:10091", from)
		if wanted != nil && !wanted[instance] {
			continue
		}
		node := fmt.Sprintf(`"instance":%q`, instance)
		switch {
		case has("up{job"):
			add(node, 1)
		case has("railscope_node_fact_info"):
			for i := range 19 {
				value := fmt.Sprintf("usual value of subject %d", i)
				if from == 300 && i == 4 {
					value = "another value"
				}
				add(fmt.Sprintf(`%s,"subject":"subject-%d","value":%q`, node, i, value), 1)
			}
		case has("railscope_port_up"):
			for rail := range scaleRails {
				add(fmt.Sprintf(`%s,"rail":"%d"`, node, rail), 1)
			}
		}
		for k := range scalePeers {
			to := (from + 1 + k*37) % scaleNodes
			peer := fmt.Sprintf(`%s,"peer":"gpu-%05d:10092"`, node, to)
			switch {
			case has("railscope_probe_transport"):
				add(peer+`,"transport":"rdma"`, 1)
			case has("probe_last_result"), has("probe_last_burst"):
				add(peer, 30)
			case has("probe_rail_up"), has("probe_rail_goodput"), has("probe_rail_expected"), has("probe_rail_retransmits"):
				for rail := range scaleRails {
					v := 50e9
					switch {
					case has("probe_rail_up"):
						v = 1
						if rail == 3 && (from == 100 || to == 100) {
							v = 0
						}
					case has("probe_rail_retransmits"):
						v = 0
					case has("probe_rail_goodput"):
						v = 47e9 * (1 + 0.02*random.NormFloat64())
						if rail == 5 && (from == 7000 || to == 7000) {
							v *= 0.5
						}
					}
					add(peer+`,"rail":"`+strconv.Itoa(rail)+`"`, v)
				}
			}
		}
	}
	out.WriteString(`]}}`)
}

// TestScale measures the time and memory of fleet blame and fleet drift on a large fleet, with -scale.
func TestScale(t *testing.T) {
	if !*scale {
		t.Skip("-scale is not set")
	}
	bin := filepath.Join(t.TempDir(), "railscope-bench")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var bytes, asked int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		counted := &counter{ResponseWriter: w}
		answerScale(counted, r)
		bytes += counted.n
	}))
	defer server.Close()
	for _, args := range [][]string{{"blame", "--max-age=0", "--format=json"}, {"drift", "--format=json"}} {
		asked, bytes = 0, 0
		cmd := exec.Command(bin, append(args, "--prometheus="+server.URL, "--timeout=600")...)
		start := time.Now()
		out, _ := cmd.Output() // it exits with 1, because there is something to blame
		took := time.Since(start)
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: %.1f s, of it %.1f s of processor, %d MB, %d questions, %d MB of answers, %d bytes of output", args[0],
			took.Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss/1024,
			asked, bytes>>20, len(out))
		for _, want := range map[string][]string{"blame": {"gpu-00100", "gpu-07000"}, "drift": {"gpu-00300"}}[args[0]] {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s does not name %s", args[0], want)
			}
		}
	}
}

// counter counts the bytes of an answer.
type counter struct {
	http.ResponseWriter
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n += int64(n)
	return n, err
}
