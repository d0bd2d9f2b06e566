//go:build lab

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// packageTime is the limit for dpkg and rpm, which unpack 25 MB and start the service.
const packageTime = 2 * time.Minute

// Packages that packages.sh has made: the deb of dist/, and a later one whose files in /etc differ.
var (
	oldDeb = filepath.Join(os.Getenv("LAB"), "packages", "old.deb")
	newDeb = filepath.Join(os.Getenv("LAB"), "packages", "new.deb")
	oldRPM = filepath.Join(os.Getenv("LAB"), "packages", "old.rpm")
)

const (
	etcConfig = "/etc/railscope/railscope.yml"
	etcToken  = "/etc/railscope/token"
	etcFlags  = "/etc/default/railscope"
)

// service is railscope.service of node 1, as the package installs it.
type service struct{ version string }

// TestPackage tests the life cycle of the package on a node with systemd: install, configure, hang, upgrade,
// remove, purge. Each step starts where the previous one ended. In node 2 a railscope answers and probes.
func TestPackage(t *testing.T) {
	needsSystemd(t)
	freshRails(t, 2)
	meet(t, 0, 1)
	answer(t)
	var s service
	var files []string
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"install", func(t *testing.T) { files = s.install(t) }},
		{"sandbox", s.sandbox},
		{"reload", s.reload},
		{"drop-ins", s.dropIns},
		{"watchdog", s.watchdog},
		{"upgrade", s.upgrade},
		{"remove", s.remove},
		{"purge", func(t *testing.T) { s.purge(t, files) }},
	} {
		if !t.Run(step.name, step.run) {
			t.Cleanup(func() {
				node(1).Run(t, "bash", "-c",
					"dpkg --no-triggers --purge railscope; rm -rf /etc/systemd/system/railscope.service.d "+
						"/etc/railscope; systemctl daemon-reload")
			})
			t.Fatalf("systemd says:\n%s", node(1).Run(t, "journalctl", "--no-pager", "-n", "60", "-u", "railscope"))
		}
	}
}

// install installs the package and returns its files.
func (s *service) install(t *testing.T) []string {
	dpkg(t, "--install", oldDeb)
	s.version = s.versionOf(t, oldDeb)
	s.shows(t, want{`port_up{rail="0"}`: 1, `port_up{rail="1"}`: 1, `source_success{source="rdma"}`: 1,
		`source_success{source="netdev"}`: 1, `probe_transport`: gone})
	s.is(t, map[string]string{"ActiveState": "active", "SubState": "running", "Type": "notify", "NRestarts": "0",
		"WatchdogUSec": "30s", "UnitFileState": "enabled"})
	if got := strings.TrimSpace(node(1).Run(t, "stat", "-c", "%a %U:%G", "/etc/railscope",
		etcConfig)); got != "750 root:railscope\n644 root:root" {
		t.Errorf("/etc/railscope and %s are %q", etcConfig, got)
	}
	return lines(node(1).Run(t, "dpkg", "--listfiles", "railscope"))
}

// sandbox checks the process, not the unit: its user, its capabilities, and what the kernel denies it.
func (s *service) sandbox(t *testing.T) {
	pid := s.pid(t)
	status := node(1).Run(t, "cat", "/proc/"+pid+"/status")
	user := strings.TrimSpace(node(1).Run(t, "id", "-u", "railscope"))
	if user == "0" {
		t.Fatal("the user railscope is root")
	}
	for field, value := range map[string]string{"Uid:": strings.Join(slices.Repeat([]string{user}, 4), "\t"),
		"NoNewPrivs:": "1", "Seccomp:": "2",
		"CapEff:": "0000000000000000", "CapBnd:": "0000000000000000", "CapAmb:": "0000000000000000"} {
		if !strings.Contains(status, "\n"+field+"\t"+value+"\n") {
			t.Errorf("/proc/%s/status has no %s %s: %s", pid, field, value, status)
		}
	}
	out := node(1).Run(t, "bash", "-c", `
cd /proc/$0/root && touch /tmp/of-others
for f in etc/railscope/x usr/x var/lib/x sys/kernel/x; do { : >$f; } 2>/dev/null && echo "$f can be written"; done
[[ -e tmp/of-others ]] && echo "/tmp is everybody's"
[[ $(stat -c %a home) == 0 && $(stat -c %a root) == 0 ]] || echo "home directories can be seen"
setpriv --reuid=railscope --regid=railscope --clear-groups test -e proc/1/cmdline && echo "processes of others can be seen"
grep -q '^Max locked memory  *4294967296  *4294967296 ' proc/$0/limits || grep locked proc/$0/limits
# From here on this is a process of the service's cgroup, and still root.
echo $$ >/sys/fs/cgroup/$(cut -d: -f3 /proc/$0/cgroup)/cgroup.procs
for d in /dev/fuse /dev/ttyS0 /dev/infiniband/rdma_cm; do { : <$d; } 2>/dev/null && echo "$d can be opened"; done
for d in /dev/infiniband/uverbs0 /dev/infiniband/uverbs1 /dev/null; do { : <>$d; } || echo "$d cannot be opened"; done
true`, pid)
	if out != "" {
		t.Errorf("in the service:\n%s", out)
	}
}

// reload adds peers to the running service, and probes it from the other node. Both ends of a round run in the
// sandbox.
func (s *service) reload(t *testing.T) {
	pid := s.pid(t)
	node(1).Shell(t, fmt.Sprintf(`
install -m 640 -o root -g railscope /out/token %s
cat >%s <<end
probe:
  name: node1
  listen: 0.0.0.0:10092
  token_file: %[1]s
  peers: [192.168.200.2]
  latency_samples: 50
  interval: 10s
end
systemctl reload railscope`, etcToken, etcConfig))
	m := s.shows(t, s.probes())
	if n := m.must(t, `probe_rounds_total{result="ok"}`) + m.must(t, `probe_rounds_total{result="degraded"}`); n < 1 {
		t.Errorf("%v rounds were by RDMA", n)
	}
	var r report
	eventually(t, roundTime, func() error { // node 1 also makes rounds, and only one runs at a time
		r = ended(t, node(2).Start(t, railscope, "bench", node(1).control(), "--token-file=/out/token", "--timeout=90s",
			"--format=json",
			"--latency-samples=20"))
		if r.Outcome == "skipped" || r.Outcome == "reached" {
			return errors.New(r.String())
		}
		return nil
	})
	r.worked(t)
	if now := s.pid(t); now != pid {
		t.Errorf("process %s became %s by a reload", pid, now)
	}
	s.is(t, map[string]string{"ActiveState": "active", "SubState": "running", "NRestarts": "0"})
}

// dropIns installs all drop-ins of the package, and one that shortens the watchdog for the next step: 30 s are too
// long to wait.
func (s *service) dropIns(t *testing.T) {
	node(1).Shell(t, `
mkdir -p /etc/systemd/system/railscope.service.d /var/log/nccl
cp /usr/share/doc/railscope/drop-ins/*.conf /etc/systemd/system/railscope.service.d
printf '[Service]\nWatchdogSec=10s\nRestartSec=1s\n' >/etc/systemd/system/railscope.service.d/quick.conf
echo 'node1:7:7 [0] NCCL INFO NET/IB : Using [0]rxe0:1/RoCE ; OOB ctl0:192.168.200.1<0>' >/var/log/nccl/job.log
chmod 600 /var/log/nccl/job.log
systemctl daemon-reload
systemctl restart railscope`)
	plugInto(t, "leaf-a")
	s.shows(t, want{`source_success{source="process"}`: 1, `source_success{source="nccl"}`: 1,
		`source_success{source="kmsg"}`: 1, `nccl_files{state="followed"}`: 1,
		`source_success{source="lldp"}`: 1, `rail_leaf_info{rail="0",leaf="leaf-a"}`: 1})
	pid := s.pid(t)
	// CAP_DAC_READ_SEARCH, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYSLOG
	if got := strings.Fields(node(1).Run(t, "grep", "-E", "^Cap(Eff|Bnd|Amb):",
		"/proc/"+pid+"/status")); !slices.Equal(got, []string{
		"CapEff:", "0000000400083004", "CapBnd:", "0000000400083004", "CapAmb:", "0000000400083004"}) {
		t.Errorf("capabilities: %q", got)
	}
	node(1).Run(t, "bash", "-c",
		"cd /proc/$0/root && setpriv --reuid=railscope --regid=railscope --clear-groups test -e proc/1/cmdline", pid)
}

// watchdog stops the process with a signal; the manager must notice and start another.
func (s *service) watchdog(t *testing.T) {
	pid := s.pid(t)
	node(1).Run(t, "kill", "-STOP", pid)
	eventually(t, linkTime, func() error {
		if n := s.property(t, "NRestarts"); n == "0" {
			return fmt.Errorf("process %s hangs and was not started anew: %s", pid, s.property(t, "SubState"))
		}
		return nil
	})
	s.shows(t, s.probes())
	s.is(t, map[string]string{"ActiveState": "active", "SubState": "running", "NRestarts": "1"})
	if log := node(1).Run(t, "journalctl", "--no-pager", "-u", "railscope"); !strings.Contains(log,
		"Watchdog timeout") {
		t.Errorf("the journal knows of no watchdog:\n%s", log)
	}
	node(1).Shell(t, `rm -r /etc/systemd/system/railscope.service.d; systemctl daemon-reload`)
}

// upgrade installs a version whose files in /etc have changed: one that the administrator has also changed, and one
// that is unmodified.
func (s *service) upgrade(t *testing.T) {
	pid, mine := s.pid(t), node(1).Run(t, "cat", etcConfig, etcToken)
	dpkg(t, "--force-confdef", "--force-confold", "--install", newDeb)
	was := s.version
	s.version = s.versionOf(t, newDeb)
	if s.version == was {
		t.Fatalf("%s has the version of %s", newDeb, oldDeb)
	}
	s.shows(t, s.probes())
	if now := s.pid(t); now == pid {
		t.Errorf("process %s is still that of version %s", pid, was)
	}
	s.is(t, map[string]string{"ActiveState": "active", "SubState": "running", "WatchdogUSec": "30s",
		"UnitFileState": "enabled"})
	if now := node(1).Run(t, "cat", etcConfig, etcToken); now != mine {
		t.Errorf("configuration and token were\n%s\nand are\n%s", mine, now)
	}
	for _, file := range []string{etcConfig + ".dpkg-dist", etcFlags} {
		if !strings.Contains(node(1).Run(t, "cat", file), "# a line of the newer package\n") {
			t.Errorf("%s is not that of the newer package", file)
		}
	}
}

func (s *service) remove(t *testing.T) {
	mine := node(1).Run(t, "cat", etcConfig, etcToken)
	dpkg(t, "--remove", "railscope")
	if _, err := fetch(s.url()); err == nil {
		t.Error("a removed service answers")
	}
	if out, err := node(1).Try("pgrep", "-u", "railscope"); err == nil {
		t.Errorf("processes are left: %s", out.Stdout)
	}
	if _, err := os.Stat("/usr/bin/railscope"); err == nil {
		t.Error("the program is left")
	}
	if now := node(1).Run(t, "cat", etcConfig, etcToken); now != mine {
		t.Errorf("configuration and token were\n%s\nand are\n%s", mine, now)
	}
}

// purge leaves only the user.
func (s *service) purge(t *testing.T, files []string) {
	dpkg(t, "--purge", "railscope")
	for _, file := range files {
		if _, err := os.Lstat(file); err == nil && strings.Contains(file, "railscope") {
			t.Errorf("%s is left", file)
		}
	}
	if left := node(1).Run(t, "find", "/etc", "/run/systemd", "/var/lib/systemd", "/var/lib/dpkg/info",
		"/usr/lib/systemd", "-name", "*railscope*"); left != "" {
		t.Errorf("left are:\n%s", left)
	}
	if user := node(1).Run(t, "getent", "passwd", "railscope"); !strings.HasSuffix(strings.TrimSpace(user),
		":/:/usr/sbin/nologin") {
		t.Errorf("the user is %q", user)
	}
}

// TestPackageRPM is a short version for the rpm. The node runs Debian, so rpm knows no other packages, and presets
// are not those of a distribution.
func TestPackageRPM(t *testing.T) {
	needsSystemd(t)
	freshRails(t, 2)
	rpm := func(args ...string) {
		node(1).Start(t, append([]string{"rpm", "--force-debian", "--nodeps"}, args...)...).Wait(t, packageTime)
	}
	rpm("--install", oldRPM)
	var s service
	s.is(t, map[string]string{"ActiveState": "inactive", "NRestarts": "0"})
	if got := strings.TrimSpace(node(1).Run(t, "stat", "-c", "%a %U:%G", "/etc/railscope",
		etcConfig)); got != "750 root:railscope\n644 root:root" {
		t.Errorf("/etc/railscope and %s are %q", etcConfig, got)
	}
	node(1).Run(t, "systemctl", "enable", "--now", "railscope")
	s.version = s.versionOf(t, oldRPM)
	s.shows(t, want{`port_up{rail="0"}`: 1, `port_up{rail="1"}`: 1})
	pid := s.pid(t)
	node(1).Shell(t, "echo '# mine' >>"+etcConfig)
	rpm("--upgrade", "--replacepkgs", oldRPM)
	s.shows(t, want{`port_up{rail="0"}`: 1})
	if out := node(1).Run(t, "tail", "-n", "1", etcConfig); out != "# mine\n" {
		t.Errorf("%s now ends with %q", etcConfig, out)
	}
	rpm("--erase", "railscope")
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Error("a removed service runs")
	}
	if left := node(1).Run(t, "find", "/etc", "/usr/bin", "/usr/lib/systemd", "/usr/share/doc", "/usr/share/licenses",
		"-name", "*railscope*"); left != "/etc/railscope\n"+etcConfig+".rpmsave\n" {
		t.Errorf("left are:\n%s", left)
	}
	node(1).Run(t, "rm", "-r", "/etc/railscope")
}

// needsSystemd skips a test if process 1 of node 1 is not systemd.
func needsSystemd(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("node 1 is not run by systemd: lab/run.sh -systemd")
	}
}

// dpkg runs without triggers: the index of manual pages is not ours, and slow here.
func dpkg(t *testing.T, args ...string) {
	t.Helper()
	out := node(1).Start(t, append([]string{"dpkg", "--no-triggers"}, args...)...).Wait(t, packageTime)
	t.Logf("dpkg %s:\n%s", strings.Join(args, " "), out)
}

func (s *service) url() string { return "http://" + node(1).control() + ":10091/metrics" }

// probes returns the expected scrape if rounds to node 2 use RDMA.
func (s *service) probes() want {
	return want{`probe_transport{transport="rdma"}`: 1, `probe_rail_up{rail="0"}`: 1, `probe_rail_up{rail="1"}`: 1,
		`probe_worker_restarts_total`: 0, `probe_rounds_total{result="fallback"}`: 0}
}

// shows waits until the service has the installed version, and a scrape shows all that is expected.
func (s *service) shows(t *testing.T, w want) (m metrics) {
	t.Helper()
	w[fmt.Sprintf("build_info{version=%q}", s.version)] = 1
	eventually(t, roundTime, func() error {
		text, err := fetch(s.url())
		if err != nil {
			return err
		}
		m, err = parse(text)
		if err != nil {
			return err
		}
		return w.check(m)
	})
	return m
}

// versionOf returns the version that the program in a package reports.
func (s *service) versionOf(t *testing.T, deb string) string {
	t.Helper()
	said := node(1).Run(t, "/usr/bin/railscope", "--version")
	fields := strings.Fields(said)
	if len(fields) < 3 {
		t.Fatalf("%s: railscope --version says %q", deb, said)
	}
	return strings.TrimSuffix(fields[2], ",")
}

func (s *service) property(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(node(1).Run(t, "systemctl", "show", "--value", "-p", name, "railscope"))
}

func (s *service) pid(t *testing.T) string {
	t.Helper()
	pid := s.property(t, "MainPID")
	if pid == "" || pid == "0" {
		t.Fatal("railscope.service has no process")
	}
	return pid
}

// is checks properties of the unit.
func (s *service) is(t *testing.T, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := s.property(t, name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}
