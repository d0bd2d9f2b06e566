package bond

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/sysfstest"
)

const testBudget = 10 * time.Second

func lacpState(member string, actor, partner int) string {
	var b strings.Builder
	for side, bits := range []int{actor, partner} {
		for bit, state := range portStates() {
			b.WriteString(`bond_member_port_state{bond="bond0",member="` + member + `",side="` + []string{"actor", "partner"}[side] +
				`",state="` + state + `"} ` + string('0'+byte(bits>>bit&1)) + "\n")
		}
	}
	return b.String()
}

var bondCases = []struct {
	name, fixture string
	rails         []rail.Rail
	change        func(t *testing.T, r sysfstest.Root)
	want          string
	faults        []string
}{
	{name: "active-backup, one member failed", fixture: "active-backup.txtar",
		rails: []rail.Rail{{Name: "east", Device: "rxe0", Port: 1, Netdev: "eth0"},
			{Name: "west", Device: "rxe1", Port: 1, Netdev: "eth9"}, {Name: "none", Device: "rxe2", Port: 1}},
		want: `
			bond_info{bond="bond0",mode="active-backup",xmit_hash_policy="",miimon="100",lacp_rate=""} 1
			bond_up{bond="bond0"} 1
			bond_members{bond="bond0"} 2
			bond_members_up{bond="bond0"} 1
			bond_members_missing{bond="bond0"} 0
			bond_active_member_info{bond="bond0",member="eth1"} 1
			bond_member_up{bond="bond0",member="eth0"} 0
			bond_member_up{bond="bond0",member="eth1"} 1
			bond_member_carrier{bond="bond0",member="eth1"} 1
			bond_member_active{bond="bond0",member="eth0"} 0
			bond_member_active{bond="bond0",member="eth1"} 1
			bond_member_link_failures_total{bond="bond0",member="eth0"} 1
			bond_member_link_failures_total{bond="bond0",member="eth1"} 0
			bond_rdma_info{bond="bond0",rail="east",device="rxe0",port="1",member="eth0"} 1`},
	{name: "balance-xor with a hardware LAG on it", fixture: "balance-xor.txtar",
		rails: []rail.Rail{{Name: "0", Device: "mlx5_bond_0", Port: 1, Netdev: "bond0"}},
		want: `
			bond_info{bond="bond0",mode="balance-xor",xmit_hash_policy="layer3+4",miimon="100",lacp_rate=""} 1
			bond_up{bond="bond0"} 1
			bond_members{bond="bond0"} 2
			bond_members_up{bond="bond0"} 2
			bond_members_missing{bond="bond0"} 0
			bond_member_up{bond="bond0",member="eth0"} 1
			bond_member_up{bond="bond0",member="eth1"} 1
			bond_member_carrier{bond="bond0",member="eth0"} 1
			bond_member_carrier{bond="bond0",member="eth1"} 1
			bond_member_active{bond="bond0",member="eth0"} 1
			bond_member_active{bond="bond0",member="eth1"} 1
			bond_member_link_failures_total{bond="bond0",member="eth0"} 0
			bond_member_link_failures_total{bond="bond0",member="eth1"} 0
			bond_rdma_info{bond="bond0",rail="0",device="mlx5_bond_0",port="1",member=""} 1`},
	{name: "802.3ad, one member failed, one without partner", fixture: "lacp.txtar",
		want: `
			bond_info{bond="bond0",mode="802.3ad",xmit_hash_policy="layer3+4",miimon="100",lacp_rate="fast"} 1
			bond_up{bond="bond0"} 1
			bond_members{bond="bond0"} 3
			bond_members_up{bond="bond0"} 2
			bond_members_missing{bond="bond0"} 0
			bond_aggregator_id{bond="bond0"} 1
			bond_aggregator_ports{bond="bond0"} 1
			bond_actor_key{bond="bond0"} 15
			bond_partner_key{bond="bond0"} 15
			bond_partner_present{bond="bond0"} 1
			bond_partner_info{bond="bond0",partner_mac="52:54:00:00:00:02"} 1
			` + lacpMembersWant + `
			bond_member_up{bond="bond0",member="eth0"} 1
			bond_member_up{bond="bond0",member="eth2"} 1
			bond_member_carrier{bond="bond0",member="eth0"} 1
			bond_member_carrier{bond="bond0",member="eth2"} 1
			bond_member_active{bond="bond0",member="eth0"} 1
			bond_member_link_failures_total{bond="bond0",member="eth0"} 0
			bond_member_link_failures_total{bond="bond0",member="eth2"} 0` + "\n" + lacpState("eth0", 63, 63)},
	{name: "802.3ad, no active aggregator", fixture: "lacp-dead.txtar",
		want: `
			bond_info{bond="bond0",mode="802.3ad",xmit_hash_policy="layer3+4",miimon="100",lacp_rate="fast"} 1
			bond_up{bond="bond0"} 0
			bond_members{bond="bond0"} 3
			bond_members_up{bond="bond0"} 0
			bond_members_missing{bond="bond0"} 0
			bond_aggregator_ports{bond="bond0"} 0
			bond_partner_present{bond="bond0"} 0
			` + lacpMembersWant + `
			bond_member_up{bond="bond0",member="eth0"} 0
			bond_member_up{bond="bond0",member="eth2"} 0
			bond_member_active{bond="bond0",member="eth0"} 0
			bond_member_link_failures_total{bond="bond0",member="eth0"} 1
			bond_member_link_failures_total{bond="bond0",member="eth2"} 1` + "\n" + lacpState("eth0", 7, 55)},
}

// lacpMembersWant holds the lines that the two LACP captures have in common.
var lacpMembersWant = `
	bond_member_up{bond="bond0",member="eth1"} 0
	bond_member_active{bond="bond0",member="eth1"} 0
	bond_member_active{bond="bond0",member="eth2"} 0
	bond_member_link_failures_total{bond="bond0",member="eth1"} 1
	bond_member_aggregator_id{bond="bond0",member="eth0"} 1
	bond_member_aggregator_id{bond="bond0",member="eth1"} 1
	bond_member_aggregator_id{bond="bond0",member="eth2"} 3
	bond_member_churned_total{bond="bond0",member="eth0",side="actor"} 0
	bond_member_churned_total{bond="bond0",member="eth0",side="partner"} 0
	bond_member_churned_total{bond="bond0",member="eth1",side="actor"} 0
	bond_member_churned_total{bond="bond0",member="eth1",side="partner"} 0
	bond_member_churned_total{bond="bond0",member="eth2",side="actor"} 1
	bond_member_churned_total{bond="bond0",member="eth2",side="partner"} 1` + "\n" + lacpState("eth1", 15,
	55) + lacpState("eth2", 71, 0)

func TestBond(t *testing.T) {
	for _, tt := range bondCases {
		t.Run(tt.name, func(t *testing.T) {
			root := sysfstest.Unpack(t, "testdata/"+tt.fixture)
			src := New(root.Sys(), root.Proc(), collectortest.Rails(tt.rails...), testBudget)
			for range 2 { // the second read uses the files kept open
				lines, faults, _ := collectortest.ReadLines(t, src)
				if diff := cmp.Diff(collectortest.TextLines(tt.want), lines); diff != "" {
					t.Errorf("samples (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.faults, faults); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestBondAbsent(t *testing.T) {
	for name, capture := range map[string]string{
		"no driver": "-- sys/class/net/lo/mtu --\n65536\n",
		"no bond":   "-- sys/class/net/bonding_masters --\n\n",
	} {
		root := sysfstest.Write(t, t.TempDir(), []byte(capture))
		err := New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget).Read(func(collector.Sample) {
			t.Errorf("%s: a sample", name)
		})
		if !errors.Is(err, collector.ErrAbsent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const bonding = "sys/class/net/bond0/bonding/"

// TestBondUnprivileged reads the capture of an unprivileged user: some files are empty, and /proc has no LACP
// details.
func TestBondUnprivileged(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/lacp.txtar")
	src := New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget)
	full, _, _ := collectortest.ReadLines(t, src)
	collectortest.Edit(t, root.Dir, map[string]string{bonding + "ad_actor_key": "\n", bonding + "ad_partner_key": "\n",
		bonding + "ad_partner_mac": "\n"})
	src = New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget)
	lines, faults, err := collectortest.ReadLines(t, src)
	if err != nil {
		t.Errorf("faults: %v", faults)
	}
	hidden := collectortest.Spoilt{Costs: []string{"bond_actor_key", "bond_partner_key", "bond_partner_present",
		"bond_partner_info"}}
	var want []string
	for _, line := range full {
		if !hidden.Explains(line) {
			want = append(want, line)
		}
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBondMembersMissing removes a member from its bond, adds it again, and then recreates the bond.
func TestBondMembersMissing(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/balance-xor.txtar")
	src := New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget)
	remake := func() {
		dir := root.Sys("class/net/bond0/bonding")
		if err := errors.Join(os.Rename(dir, dir+"-gone"), os.CopyFS(dir, os.DirFS(dir+"-gone"))); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name    string
		do      func()
		members string
		missing string
	}{
		{"start", func() {}, "2", "0"},
		{"eth1 leaves", func() {
			collectortest.Edit(t, root.Dir, map[string]string{bonding + "slaves": "eth0\n"})
		}, "1", "1"},
		{"still gone", func() {}, "1", "1"},
		{"eth1 is back", func() {
			collectortest.Edit(t, root.Dir, map[string]string{bonding + "slaves": "eth1 eth0\n"})
		}, "2", "0"},
		{"both leave", func() {
			collectortest.Edit(t, root.Dir, map[string]string{bonding + "slaves": "\n"})
		}, "0", "2"},
		{"made anew", remake, "0", "0"},
	} {
		step.do()
		lines, faults, _ := collectortest.ReadLines(t, src)
		text := strings.Join(lines, "\n")
		if len(faults) > 0 || !strings.Contains(text,
			`bond_members{bond="bond0"} `+step.members) || !strings.Contains(text,
			`bond_members_missing{bond="bond0"} `+step.missing) {
			t.Errorf("%s: %v\n%s", step.name, faults, text)
		}
	}
}

func TestBondSpoilt(t *testing.T) {
	member := "sys/class/net/eth0/bonding_slave/"
	lacp := []string{"bond_info", "bond_aggregator_id", "bond_aggregator_ports", "bond_actor_key", "bond_partner_key",
		"bond_partner_present", "bond_partner_info", "bond_member_aggregator_id", "bond_member_churned_total",
		"bond_member_port_state"}
	members := []string{"bond_members", "bond_members_up", "bond_members_missing", "bond_member_up",
		"bond_member_carrier", "bond_member_link_failures_total", "bond_member_active", "bond_member_aggregator_id",
		"bond_member_churned_total", "bond_member_port_state"}
	collectortest.TestSpoilt(t, []collectortest.Spoilt{
		{Path: bonding + "mode", Costs: lacp, Device: "bond0", Reasons: collectortest.WordReasons()},
		{Path: bonding + "mii_status", Costs: []string{"bond_up"}, Device: "bond0",
			Reasons: collectortest.WordReasons()},
		{Path: bonding + "ad_num_ports", Costs: []string{"bond_aggregator_ports"}, Device: "bond0",
			Reasons: map[string]string{"empty": ""}},
		{Path: bonding + "ad_partner_mac", Costs: []string{"bond_partner_present", "bond_partner_info"},
			Device: "bond0", Reasons: collectortest.WordReasons("empty", "")},
		{Path: member + "mii_status", Costs: []string{"bond_member_up eth0", "bond_members_up"}, Device: "bond0",
			Reasons: collectortest.WordReasons()},
		{Path: member + "state", Costs: []string{"bond_member_active eth0"}, Device: "bond0",
			Reasons: collectortest.WordReasons()},
		{Path: member + "link_failure_count", Costs: []string{"bond_member_link_failures_total eth0"}, Device: "bond0"},
		{Path: "sys/class/net/eth0/carrier", Costs: []string{"bond_member_carrier eth0"}, Device: "bond0"},
	}, func(t *testing.T) (collector.Source, string) {
		root := sysfstest.Unpack(t, "testdata/lacp.txtar")
		return New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget), root.Dir
	})
	for name, tt := range map[string]struct {
		path, content string
		costs         []string
		faults        []string
	}{
		"no list of members": {bonding + "slaves", "", members, []string{"bond0: " + sysfs.ReasonVanished}},
		"a path for a member": {bonding + "slaves", "eth0 ../../etc\n", members,
			[]string{"bond0: " + sysfs.ReasonInvalid}},
		"port state over 8 bit": {member + "ad_actor_oper_port_state", "256\n", []string{"bond_member_port_state eth0"},
			[]string{"bond0: " + sysfs.ReasonInvalid}},
		"no aggregator for it": {member + "ad_aggregator_id", "N/A\n", []string{"bond_member_aggregator_id eth0"},
			nil},
		"no procfs": {"proc/net/bonding/bond0", "", []string{"bond_member_churned_total"},
			[]string{"bond0: vanished (expected)"}},
		"churn unreadable": {"proc/net/bonding/bond0", "Slave Interface: eth0\nActor Churned Count: -1\n",
			[]string{"bond_member_churned_total"}, []string{"bond0: " + sysfs.ReasonInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				root := sysfstest.Unpack(t, "testdata/lacp.txtar")
				src := New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget)
				before, _, _ := collectortest.ReadLines(t, src)
				collectortest.Edit(t, root.Dir, map[string]string{tt.path: tt.content})
				time.Sleep(collector.FactsEvery)
				after, faults, _ := collectortest.ReadLines(t, src)
				var want []string
				for _, line := range before {
					if !(collectortest.Spoilt{Costs: tt.costs}).Explains(line) || name == "port state over 8 bit" &&
						strings.Contains(line, "partner") {
						want = append(want, line)
					}
				}
				if diff := cmp.Diff(want, after); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.faults, faults); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestBondOthersGoOn reads two bonds, one of which is not a bond in spite of its name.
func TestBondOthersGoOn(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/balance-xor.txtar")
	src := New(root.Sys(), root.Proc(), func() ([]rail.Rail, error) {
		return nil, errors.New("the finder is broken")
	}, testBudget)
	want, _, _ := collectortest.ReadLines(t, src)
	collectortest.Edit(t, root.Dir, map[string]string{"sys/class/net/bonding_masters": "bond0 bond1 bad/name\n"})
	lines, faults, _ := collectortest.ReadLines(t, src)
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{": invalid", ": io", "bond1: vanished"}, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// TestBondBudget: a slow finder of rails takes no time from the bonds' budgets.
func TestBondBudget(t *testing.T) {
	collectortest.TestBudget(t, func(t *testing.T, slow bool) collector.Source {
		root := sysfstest.Unpack(t, "testdata/lacp.txtar")
		return New(root.Sys(), root.Proc(), collectortest.SlowRails(slow, collectortest.NoRails), collectortest.Budget)
	})
}

func TestBondTable(t *testing.T) { collectortest.TestTable(t, New("", "", collectortest.NoRails, 0)) }

func FuzzBondProc(f *testing.F) {
	for _, name := range []string{"lacp", "active-backup", "balance-xor"} {
		root := sysfstest.Unpack(f, "testdata/"+name+".txtar")
		b, err := os.ReadFile(root.Proc("net/bonding/bond0"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("Slave Interface: a/b\nActor Churned Count: 1\nSlave Interface: eth0\nport state: 3\ndetails " +
		"actor lacp pdu:\nport state: 99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		churn, errs := parseProc(b)
		if most := 2 * maxMembers; len(churn) > most { // each member has churn on both sides
			t.Errorf("%d entries, want at most %d", len(churn), most)
		}
		for key := range churn {
			if !sysfs.ValidNetdev(key.member) {
				t.Errorf("member %q", key.member)
			}
		}
		for _, err := range errs {
			if _, ok := errors.AsType[*sysfs.Error](err); !ok {
				t.Errorf("%v is no *sysfs.Error", err)
			}
		}
	})
}

func BenchmarkBondRead(b *testing.B) {
	for _, name := range []string{"active-backup", "lacp"} {
		b.Run(name, func(b *testing.B) {
			root := sysfstest.Unpack(b, "testdata/"+name+".txtar")
			src := New(root.Sys(), root.Proc(), collectortest.NoRails, testBudget)
			b.ReportAllocs()
			for b.Loop() {
				if err := src.Read(func(collector.Sample) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
