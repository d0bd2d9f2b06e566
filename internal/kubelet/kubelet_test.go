package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

var id = strings.Repeat("c0ffee00", 8)

const uid = "3f1c9e0a-4b7d-4f7a-9c55-0d5d8a4f1b2e"

func TestReadNames(t *testing.T) {
	root := sysfstest.Write(t, t.TempDir(), []byte(`
-- var/log/containers/train-0_default_trainer-`+id+`.log --
-> ../pods/default_train-0_`+uid+`/trainer/0.log
-- var/log/containers/train-0_default_trainer-short.log --
-- var/log/containers/notes.txt --
-- var/log/containers/Bad_default_x-`+id+`.log --
-- var/log/pods/default_train-0_`+uid+`/trainer/0.log --
-- var/log/pods/kube-system_etcd-node7_5d3cf1f1a0f0a5a6e0f3e6f1f1a0f0a5/etcd/0.log --
-- var/log/pods/lost+found/x --
`))
	got, err := ReadNames(root.Dir)
	want := Names{
		Containers: map[string]Name{id: {"default", "train-0", "trainer"}},
		Pods: map[string]Name{
			uid:                                {Namespace: "default", Pod: "train-0"},
			"5d3cf1f1a0f0a5a6e0f3e6f1f1a0f0a5": {Namespace: "kube-system", Pod: "etcd-node7"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestReadNamesFails(t *testing.T) {
	if got, err := ReadNames(t.TempDir()); err != nil || len(got.Containers)+len(got.Pods) > 0 {
		t.Errorf("without a kubelet: %v, %v", got, err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "var/log"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, containerLogs), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := ReadNames(dir)
	var e *sysfs.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), containerLogs) {
		t.Errorf("a file where a directory belongs: %v", err)
	}
}
