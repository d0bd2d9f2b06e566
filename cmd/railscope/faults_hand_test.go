package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfstest"
	"github.com/railscope/railscope/test/faults"
)

// gathered returns the facts that doctor gathers on a captured machine with a change.
func gathered(t *testing.T, machine, change string) *facts.Facts {
	t.Helper()
	return facts.New(capturedBy(t, machine, change)).Gather(t.Context(), facts.ByHand)
}

// capturedBy returns the options that read a captured machine with a change.
func capturedBy(t *testing.T, machine, change string) facts.Options {
	t.Helper()
	root := sysfstest.Unpack(t, "../../doctor/testdata/"+machine+".txtar")
	doctortest.Apply(t, root, files(t, change))
	o := facts.Options{Sysfs: root.Sys(), Procfs: root.Proc(), Rootfs: root.Dir, Rails: doctortest.Rails(root.Sys()),
		Kernel: doctortest.Kernel(root)}
	if own := filepath.Join(root.Dir, "root"); exists(own) {
		o.Rootfs = own
	}
	o.Kernel.QueuePairs = func(device string, _ rdmanl.QPLimits, each func(rdmanl.QP)) error {
		answers(t, root, "qps", func(line string) error {
			var of string
			pair := rdmanl.QP{Port: 1, State: rdmanl.RTS}
			_, err := fmt.Sscan(line, &of, &pair.PID)
			if of == device {
				each(pair)
			}
			return err
		})
		return nil
	}
	o.Kernel.UCXInfo = func(context.Context) (path, output string, err error) {
		data, err := os.ReadFile(filepath.Join(root.Dir, "kernel/ucx"))
		if err != nil {
			return "", "", nil // the program is not installed
		}
		for device := range strings.FieldsSeq(string(data)) {
			output += fmt.Sprintf("#      Transport: rc_mlx5\n#         Device: %s:1\n", device)
		}
		return "/usr/bin/ucx_info", output, nil
	}
	return o
}

// TestFaultsByHand plants each fault of the matrix that only doctor sees: in what a user runs, and between two
// nodes.
func TestFaultsByHand(t *testing.T) {
	for _, f := range faults.List() {
		if !f.ByHand && f.Far == "" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			here := gathered(t, f.Machine, joined(f.Before, f.Change))
			here.Node = "here"
			var there *facts.Facts
			if f.Far != "" {
				data, err := json.Marshal(check.Share(gathered(t, f.Machine, joined(f.Before, f.Far))))
				if err != nil {
					t.Fatal(err)
				}
				there, err = facts.Parse(data)
				if err != nil {
					t.Fatal(err)
				}
				there.Node = faults.Peer
			}
			found := report.Examine(here, there, nil).Findings
			diff := unnamed(f, keys(found))
			for _, one := range found {
				diff += doctortest.Incomplete(one)
			}
			if diff != "" {
				t.Error(diff, evidence(found))
			}
		})
	}
}

func joined(changes ...string) string { return strings.Trim(strings.Join(changes, "; "), "; ") }

func evidence(list []finding.Finding) (text string) {
	for _, f := range list {
		text += fmt.Sprintf("\n%s, %s: %s", f.Check, f.Subject, f.Evidence)
	}
	return text
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
