package check

import (
	"strings"
	"testing"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
)

// kernelLog has messages of the driver in the format of /dev/kmsg, after mlx5/core/lag/lag.c of Linux 6.12.
const kernelLog = `3,900,9000000,-;mlx5_core 0000:17:00.0: mlx5_create_lag:617:(pid 431): Failed to create LAG (-22)
3,901,9000001,-;mlx5_core 0000:17:00.0: mlx5_activate_lag:671:(pid 431): Failed to activate RoCE LAG
6,902,9000002,-;mlx5_core 0000:17:00.0: lag map: port 1:1 port 2:2
3,903,9000003,-;mlx5_core 0000:99:00.0: mlx5_create_lag:617:(pid 431): Failed to create LAG (-5)
12,904,9000004,-;mlx5_core 0000:17:00.0: user space: Failed to create LAG (0)
3,905,9000005,-;mlx5_core 0000:17:00.1: mlx5_create_lag:617:(pid 431): Failed to create LAG (-22)
`

// apart gives the bond's ports two RDMA devices, and so makes two rails.
func apart() string {
	text := ""
	for i, netdev := range []string{"ens1f0np0", "ens1f1np1"} {
		function := "sys/devices/pci0000:16/0000:16:02.0/0000:17:00." + string(rune('0'+i))
		device := "mlx5_" + string(rune('0'+i))
		port := function + "/infiniband/" + device + "/ports/1/"
		for path, content := range map[string]string{
			function + "/infiniband/" + device + "/device":    "-> ../../../0000:17:00." + string(rune('0'+i)),
			function + "/infiniband/" + device + "/node_guid": "b859:9f03:0000:000" + string(rune('0'+i)),
			port + "state":             "4: ACTIVE",
			port + "rate":              "100 Gb/sec (4X EDR)",
			port + "link_layer":        "Ethernet",
			port + "gids/0":            "fe80:0000:0000:0000:ba59:9fff:fe00:000" + string(rune('0'+i)),
			port + "gid_attrs/types/0": "RoCE v2",
			port + "gid_attrs/ndevs/0": netdev,
			"sys/class/infiniband/" + device: "-> ../../" + strings.TrimPrefix(function, "sys/") + "/infiniband/" +
				device,
		} {
			text += doctortest.File(path, content)
		}
	}
	return "gone sys/class/infiniband/mlx5_bond_0\n" +
		"gone sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/infiniband\n" + text
}

// TestNoLAG: the evidence has the reason why the driver made no device of a bond, if it is known.
func TestNoLAG(t *testing.T) {
	find := func(change string, scope facts.Scope) string {
		t.Helper()
		o := doctortest.Captured(t, "lag", apart()+change)
		f := facts.New(o).Gather(t.Context(), scope)
		for _, c := range judge(f, nil) {
			if c.Check == "bond_no_lag" {
				return c.Evidence
			}
		}
		t.Fatalf("no such finding: %v", judge(f, nil))
		return ""
	}
	const plain = "the driver made no device of the bond"
	log := doctortest.File("dev/kmsg", kernelLog)
	if got := find("", facts.ByHand); !strings.HasSuffix(got, plain) {
		t.Error(got)
	}
	if got := find(log, facts.All); !strings.HasSuffix(got, plain) {
		t.Error("the log is read every minute:", got)
	}
	const has = `; the kernel log has "mlx5_core 0000:17:00.`
	want := plain + has + `1: mlx5_create_lag:617:(pid 431): Failed to create LAG (-22)"` +
		has + `0: mlx5_activate_lag:671:(pid 431): Failed to activate RoCE LAG"` +
		has + `0: mlx5_create_lag:617:(pid 431): Failed to create LAG (-22)"`
	if got := find(log, facts.ByHand); !strings.HasSuffix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
	vfs := doctortest.File("sys/class/net/ens1f1np1/device/sriov_numvfs", "4")
	if got := find(vfs, facts.WithoutJobs); !strings.HasSuffix(got, plain+"; ens1f1np1 has 4 virtual functions "+
		"(sriov_numvfs), with which mlx5 makes one device in switchdev mode alone") {
		t.Error(got)
	}
}

// TestEmptyBond: the bond that the module creates is down, and not a fault.
func TestEmptyBond(t *testing.T) {
	f := doctortest.Machine(t, "rxe", emptyBond("0x1402"))
	if list := judge(f, nil); len(list) > 0 || len(f.Unread) > 0 {
		t.Error(list, f.Unread)
	}
}

// TestAdapterLog: the evidence has the last kernel message about an adapter that failed.
func TestAdapterLog(t *testing.T) {
	const log = `6,900,9000000,-;mlx5_core 0000:ab:00.0: firmware version: 28.45.4028
3,901,9000001,-;mlx5_core 0000:ab:00.0: wait_fw_init:199:(pid 1): firmware initialization failed
3,902,9000002,-;mlx5_core 0000:ac:00.0: firmware initialization failed
6,903,9000003,-;mlx5_core 0000:ab:00.0: E-Switch: cleanup
`
	o := doctortest.Captured(t, "hgx", twoAdapters("")+doctortest.File("dev/kmsg", strings.TrimSuffix(log, "\n")))
	for scope, want := range map[facts.Scope]bool{facts.ByHand: true, facts.WithoutJobs: false} {
		list := judge(facts.New(o).Gather(t.Context(), scope), nil)
		const text = `the kernel log has "mlx5_core 0000:ab:00.0: wait_fw_init:199:(pid 1): firmware initialization failed"`
		if len(list) != 1 || strings.Contains(list[0].Evidence, text) != want {
			t.Errorf("scope %v: %+v", scope, list)
		}
	}
}
