//go:build cgo

package verbs

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/railscope/railscope/probe/internal/fakecuda"
)

// TestStage: a staged copy is on the host when it is ready, not where none was asked for, and never outside.
func TestStage(t *testing.T) {
	const size = 1 << 20
	ledger := fakecuda.Ledger(t)
	m, _, err := FindGPU(fakecuda.Library(t), fakecuda.GPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Alloc(CUDASpec{Size: size, Device: true, Host: true, Slots: 2}); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("railscope"), size/9)
	if err := m.Write(0, data); err != nil {
		t.Fatal(err)
	}
	invalid := -int(syscall.EINVAL)
	for _, bad := range [][4]uint64{{2, 0, 0, 1}, {0, size, 0, 1}, {0, 0, size, 1}, {0, 1, 0, size}, {0, 0, 0, 1 << 63},
		{0, ^uint64(0), 0, 2}} {
		if rc := m.begin(uint32(bad[0]), bad[1], bad[2], bad[3]); rc != invalid {
			t.Errorf("begin %v: %d", bad, rc)
		}
	}
	if a, b := m.ready(0), m.ready(2); a != invalid || b != invalid {
		t.Errorf("ready before a copy: %d, of no slot: %d", a, b)
	}
	if rc := m.begin(0, 100, 5000, 300) + m.begin(1, 0, 0, 4096); rc != 0 {
		t.Fatalf("begin: %d", rc)
	}
	if m.ready(1) != 0 || m.ready(1) != 1 || m.ready(0) != 0 || m.ready(0) != 1 {
		t.Error("ready too early, or never")
	}
	want := make([]byte, size)
	copy(want[5000:], data[100:400])
	copy(want, data[:4096])
	if !bytes.Equal(m.Host(), want) {
		t.Error("what is staged differs")
	}
	if rc := m.begin(0, 0, 0, size); rc != 0 { // in flight at Close
		t.Fatal(rc)
	}
	t.Setenv("FAKECUDA_FAIL", "cuEventQuery:999")
	if rc := m.ready(0); rc != -int(syscall.EIO) {
		t.Errorf("ready after an error of CUDA: %d", rc)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if got := ledger(); got != "contexts=0 memories=0 hosts=0 streams=0 events=0" {
		t.Errorf("after Close: %s", got)
	}
}

// TestCloseFails: Close frees the rest, and returns what failed.
func TestCloseFails(t *testing.T) {
	ledger := fakecuda.Ledger(t)
	m, _, err := FindGPU(fakecuda.Library(t), fakecuda.GPU)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Alloc(CUDASpec{Size: 1, Device: true, Host: true, Slots: 1}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKECUDA_FAIL", "cuMemFree_v2:999")
	if err := m.Close(); err == nil {
		t.Error("no error")
	}
	if got := ledger(); got != "contexts=0 memories=1 hosts=0 streams=0 events=0" {
		t.Errorf("after Close: %s", got)
	}
}
