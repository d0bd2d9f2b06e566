package main

import (
	"strings"
	"testing"
	"time"
)

// TestNodeFacts: the first examination exports what the node should have in common with others.
func TestNodeFacts(t *testing.T) {
	r := start(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--no-source.gpu", "--config.file="+file(t, "rails: {}\n"))
	const want = "\nrailscope_node_fact_info{subject=\"configuration\",value=\""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, body := r.get(t, "/metrics")
		if strings.Contains(body, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no digest of the configuration")
		}
	}
}
