//go:build dist

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tools are the commands that the packages' scripts call.
var tools = []string{"systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper", "deb-systemd-invoke", "systemctl",
	"getent", "rm"}

// TestScripts runs the install and remove scripts where nothing of systemd works, as in a container or in an image
// build without /proc. They must not leave a package half-installed.
func TestScripts(t *testing.T) {
	for _, tc := range []struct {
		script, args string
		works        string // tools that work
		calls        string // expected end of the list of calls
		fails        bool
	}{
		{script: "deb/postinst", args: "configure", works: "systemd-sysusers",
			calls: "deb-systemd-helper update-state railscope.service"},
		{script: "deb/postinst", args: "configure", works: "systemd-sysusers deb-systemd-helper",
			calls: "deb-systemd-helper enable railscope.service"},
		{script: "deb/postinst", args: "configure 0.0.9", works: "systemd-sysusers",
			calls: "deb-systemd-helper update-state railscope.service"},
		{script: "deb/postinst", args: "configure", fails: true,
			calls: "systemd-sysusers railscope.conf"}, // the service has no user
		{script: "deb/postinst", args: "triggered x", calls: ""},
		{script: "deb/prerm", args: "upgrade 0.2.0", calls: ""},
		{script: "deb/prerm", args: "remove", calls: ""},
		{script: "deb/postrm", args: "remove", calls: ""},
		{script: "deb/postrm", args: "purge", works: "rm", calls: "rm -rf /etc/railscope /var/lib/railscope"},
		{script: "rpm/preinst", args: "1", fails: true,
			calls: "systemd-sysusers --replace=/usr/lib/sysusers.d/railscope.conf -"},
		{script: "rpm/preinst", args: "1", works: "getent", calls: "getent group railscope"},
		{script: "rpm/postinst", args: "1", calls: "systemctl --no-reload preset railscope.service"},
		{script: "rpm/postinst", args: "2", calls: ""}, // an upgrade changes nothing
		{script: "rpm/prerm", args: "0", calls: "systemctl --no-reload disable railscope.service"},
		{script: "rpm/prerm", args: "1", calls: ""},
		{script: "rpm/postrm", args: "0", calls: ""},
		{script: "rpm/postrm", args: "1", calls: ""},
	} {
		t.Run(tc.script+" "+tc.args, func(t *testing.T) {
			if _, err := os.Stat("/run/systemd/system"); err == nil {
				t.Skip("systemd runs this machine: the scripts ask it more")
			}
			dir := t.TempDir()
			for _, tool := range tools {
				status := "1"
				if strings.Contains(" "+tc.works+" ", " "+tool+" ") {
					status = "0"
				}
				text := "#!/bin/sh\necho \"" + tool + " $*\" >>" + dir + "/calls\nexit " + status + "\n"
				if err := os.WriteFile(filepath.Join(dir, tool), []byte(text),
					0o755); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			cmd := exec.Command("/bin/sh", append([]string{tc.script}, strings.Fields(tc.args)...)...)
			cmd.Env = []string{"PATH=" + dir} // hides the tools of this machine
			out, err := cmd.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("%v: %s", err, out)
			}
			log, _ := os.ReadFile(filepath.Join(dir, "calls")) // no file means no calls
			calls := strings.Split(strings.TrimSpace(string(log)), "\n")
			last := calls[len(calls)-1]
			if last != tc.calls {
				t.Errorf("at the end it called %q, want %q; all: %q", last, tc.calls, calls)
			}
		})
	}
}
