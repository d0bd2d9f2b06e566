package integrations

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// commands returns a directory with commands that record their arguments and run the body, and a function that returns
// the recorded calls.
func commands(t *testing.T, bodies map[string]string) (path string, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	for name, body := range bodies {
		script := "#!/bin/sh\necho \"" + name + " $*\" >>" + log + "\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + os.Getenv("PATH"), func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// says returns the body of a railscope check with this line and exit code.
func says(line string, code string) string { return "echo '" + line + "'; exit " + code }

const (
	good     = "railscope: ok: 8 rails up"
	critical = "railscope: critical: rail 3: port down (+2 more)"
	warning  = "railscope: warning: rail 3: mtu low"
	unknown  = "railscope: unknown: no answer within 2s"
)

// run runs a shell script and returns its output and exit code.
func run(t *testing.T, path string, env []string, args ...string) (out string, code int) {
	t.Helper()
	// The test cache does not see what the shell reads, so this records the directory for it.
	if _, err := os.ReadDir("."); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "PATH="+path), env...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text), 0
}

// TestSlurm: only a finding refuses a job and drains a node, and only HealthCheckProgram calls scontrol.
func TestSlurm(t *testing.T) {
	t.Parallel()
	settings := filepath.Join(t.TempDir(), "epilog")
	if err := os.WriteFile(settings, []byte("RAILSCOPE_PEER=spark-02\nRAILSCOPE_TOKEN_FILE='/a b'\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const (
		drained = "echo NodeName=n1 State=IDLE+DRAIN Reason=other"
		drains  = "railscope check\nscontrol show node --oneliner n1\nscontrol update NodeName=n1 State=DRAIN " +
			"Reason=rail 3: port down (+2 more)"
	)
	for _, tc := range []struct {
		script, check, scontrol string
		env                     []string
		code                    int
		calls                   string
	}{
		{"slurm-prolog.sh", says(good, "0"), "", nil, 0, "railscope check\n"},
		{"slurm-prolog.sh", says(unknown, "2"), "", nil, 0, "railscope check\n"},
		{"slurm-prolog.sh", says(critical, "1"), "", nil, 1,
			"railscope check\nlogger -t railscope-prolog job 42 refused: " + critical + "\n"},
		{"slurm-epilog.sh", says(good, "0"), "", nil, 0, "railscope check\n"},
		{"slurm-epilog.sh", says(critical, "1"), "", []string{"RAILSCOPE_EPILOG=" + settings}, 1,
			"railscope check --peer=spark-02 --token-file=/a b\nlogger -t railscope-epilog after job 42: " + critical + "\n"},
		{"slurm-epilog.sh", says(unknown, "2"), "", nil, 0, "railscope check\n"},
		{"slurm-health.sh", says(good, "0"), "", nil, 0, "railscope check\n"},
		{"slurm-health.sh", says(unknown, "2"), "", nil, 0, "railscope check\n"},
		{"slurm-health.sh", says(critical, "1"), "echo NodeName=n1 State=IDLE", nil, 0,
			drains + " (railscope)\n"},
		{"slurm-health.sh", says(critical, "1"), "echo NodeName=n1 State=IDLE+DRAIN Reason=Prolog error [root@now]", nil, 0,
			drains + " (railscope, Prolog error)\n"},
		{"slurm-health.sh", says(critical, "1"), "echo NodeName=n1 State=DOWN+DRAIN Reason=Epilog error [root@now]", nil, 0,
			drains + " (railscope, Epilog error)\n"},
		{"slurm-health.sh", says(critical, "1"), "exit 1", nil, 0, "railscope check\nscontrol show node --oneliner n1\n"},
		{"slurm-health.sh", says(critical, "1"), drained, nil, 0, "railscope check\nscontrol show node --oneliner n1\n"},
	} {
		path, calls := commands(t, map[string]string{"railscope": tc.check, "scontrol": tc.scontrol, "logger": ""})
		env := append([]string{"SLURM_JOB_ID=42", "SLURMD_NODENAME=n1", "RAILSCOPE_EPILOG=/none"}, tc.env...)
		if out, code := run(t, path, env, "sh", tc.script); code != tc.code || calls() != tc.calls {
			t.Errorf("%s with %s: exit %d, %q, calls\n%s\nwant exit %d, calls\n%s", tc.script, tc.check, code, out, calls(),
				tc.code, tc.calls)
		}
	}
}

// TestSlurmGate: a job with several nodes starts unless the gate leaves some out, which are drained with the reason.
func TestSlurmGate(t *testing.T) {
	t.Parallel()
	const (
		hosts = "[ \"$1\" = show ] && printf 'n1\\nn2\\n'; exit 0"
		gate  = "railscope fleet gate --nodes=- --token-file=/etc/railscope/token --format=drain\n"
		asked = "scontrol show hostnames n[1-2]\n"
		drain = "printf '# rail 3 of n2: slow\\nn2\\n'; "
	)
	for _, tc := range []struct {
		gate, scontrol string
		code           int
		calls          string
	}{
		{"exit 0", hosts, 0, asked + gate},
		{"exit 2", hosts, 0, asked + gate},
		{drain + "exit 2", hosts, 0, asked + gate},
		{drain + "exit 1", hosts, 1, asked + gate + "scontrol update NodeName=n2 State=DRAIN Reason=rail 3 of n2: slow " +
			"(railscope gate)\nlogger -t railscope-gate job 42: n2 drained: rail 3 of n2: slow\n"},
		{"exit 1", "echo n1", 0, asked},
		{"exit 1", "exit 1", 0, asked},
	} {
		path, calls := commands(t, map[string]string{"railscope": tc.gate, "scontrol": tc.scontrol, "logger": ""})
		env := []string{"SLURM_JOB_ID=42", "SLURM_JOB_NODELIST=n[1-2]"}
		if out, code := run(t, path, env, "sh", "slurm-gate.sh"); code != tc.code || calls() != tc.calls {
			t.Errorf("%s: exit %d, %q, calls\n%s\nwant exit %d, calls\n%s", tc.gate, code, out, calls(), tc.code, tc.calls)
		}
	}
}

// TestSlurmMaintenance: the file exists while Slurm reports maintenance, and another owner's file stays.
func TestSlurmMaintenance(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "run", "maintenance")
	for _, tc := range []struct {
		name, scontrol, before, after string // content of the file; "-" if it does not exist
	}{
		{"idle", "echo NodeName=n1 State=IDLE ThreadsPerCore=1", "-", "-"},
		{"drained for it", "echo 'NodeName=n1 State=IDLE+DRAIN Reason=maintenance: new cable [root@now]'", "-", "slurm\n"},
		{"still", "echo 'NodeName=n1 State=DOWN+DRAIN Reason=Maintenance [root@now]'", "slurm\n", "slurm\n"},
		{"in a reservation", "echo NodeName=n1 State=IDLE+MAINTENANCE ThreadsPerCore=1", "-", "slurm\n"},
		{"not known", "exit 1", "slurm\n", "slurm\n"},
		{"well again", "echo NodeName=n1 State=IDLE", "slurm\n", "-"},
		{"drained for a finding", "echo 'NodeName=n1 State=IDLE+DRAIN Reason=rail 1: port down (railscope)'", "slurm\n", "-"},
		{"a file of others", "echo NodeName=n1 State=IDLE", "", ""},
	} {
		_ = os.RemoveAll(filepath.Dir(file))
		if tc.before != "-" {
			if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755),
				os.WriteFile(file, []byte(tc.before), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		path, _ := commands(t, map[string]string{"scontrol": tc.scontrol})
		out, code := run(t, path, []string{"SLURMD_NODENAME=n1", "RAILSCOPE_MAINTENANCE=" + file}, "sh",
			"slurm-maintenance.sh")
		text, err := os.ReadFile(file)
		got := string(text)
		if err != nil {
			got = "-"
		}
		if code != 0 || out != "" || got != tc.after {
			t.Errorf("%s: exit %d, %q, the file has %q, want %q", tc.name, code, out, got, tc.after)
		}
	}
}

// TestBounded: a railscope or system log that hangs does not keep a job from starting.
func TestBounded(t *testing.T) {
	t.Parallel()
	for name, bodies := range map[string]map[string]string{
		"railscope": {"railscope": "trap '' TERM; sleep 60"},
		"logger":    {"railscope": says(critical, "1"), "logger": "sleep 60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, _ := commands(t, bodies)
			start, want := time.Now(), 0
			if name == "logger" {
				want = 1
			}
			if out, code := run(t, path, nil, "sh", "slurm-prolog.sh"); code != want || time.Since(start) > 30*time.Second {
				t.Errorf("exit %d after %v: %s", code, time.Since(start), out)
			}
		})
	}
}

// TestNagios checks the exit codes of Nagios plugins.
func TestNagios(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{says(good, "0"): 0, says(warning, "1"): 1, says(critical, "1"): 2,
		says(unknown, "2"): 3, "exit 127": 3, "echo 'level=WARN msg=x' >&2; " + says(critical, "1"): 2} {
		path, calls := commands(t, map[string]string{"railscope": line})
		out, code := run(t, path, nil, "sh", "nagios.sh", "--ignore=mtu_low")
		if code != want || !strings.HasPrefix(out, "railscope: ") ||
			calls() != "railscope check --min-severity=warning --ignore=mtu_low\n" {
			t.Errorf("%s: exit %d, want %d; %q, %q", line, code, want, out, calls())
		}
	}
}

// TestNHC: the check fails like NHC's own, through its function die, which evaluates the text.
func TestNHC(t *testing.T) {
	t.Parallel()
	const nhc = `die() { eval echo "'ERROR: $2'"; }; . ./railscope.nhc; check_railscope --min-severity=warning`
	for line, want := range map[string]string{says(good, "0"): "", says(unknown, "2"): "",
		says(critical, "1"):                    "ERROR: " + critical + "\n",
		`echo "process a'; echo b; '"; exit 1`: "ERROR: process a; echo b; \n"} {
		path, _ := commands(t, map[string]string{"railscope": line})
		if out, code := run(t, path, nil, "bash", "-c", nhc); out != want || (code == 0) != (want == "") {
			t.Errorf("%s: exit %d, %q, want %q", line, code, out, want)
		}
	}
}

// TestFiles: the files for other programs have their formats. node-problem-detector reads exit code 0 as good, 1 as a
// problem and 2 as unknown, which matches railscope check.
func TestFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("node-problem-detector.json")
	if err != nil {
		t.Fatal(err)
	}
	var npd struct {
		Plugin       string
		PluginConfig struct {
			Timeout         string
			MaxOutputLength int `json:"max_output_length"`
		}
		Conditions []struct{ Type string }
		Rules      []struct {
			Type, Condition, Path, Timeout string
			Args                           []string
		}
	}
	if err := json.Unmarshal(text, &npd); err != nil {
		t.Fatal(err)
	}
	r := npd.Rules[0]
	if npd.Plugin != "custom" || npd.PluginConfig.MaxOutputLength != 80 || r.Type != "permanent" ||
		r.Condition != npd.Conditions[0].Type || r.Path != "/usr/bin/railscope" || strings.Join(r.Args, " ") != "check" {
		t.Errorf("%+v", npd)
	}
	text, err = os.ReadFile("kubernetes-init.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		Spec struct {
			InitContainers []struct{ Args []string } `yaml:"initContainers"`
		}
	}
	if err := yaml.Unmarshal(text, &pod); err != nil || pod.Spec.InitContainers[0].Args[0] != "check" {
		t.Errorf("%+v: %v", pod, err)
	}
}
