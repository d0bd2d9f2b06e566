package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/railscope/railscope/"

// rule says which files may import a package.
type rule struct {
	pkg   string   // import path, and all below it; ours/… is in this module
	only  []string // files and directories (with subdirectories) that may import it; nil: none
	not   []string // packages below pkg that anybody may import
	tests bool     // all test files may import it
	why   string
}

var rules = []rule{
	{pkg: "ours/cmd",
		why: "cmd wires everything, so nothing can depend on it"},
	{pkg: "ours/internal/serve", only: []string{"cmd"},
		why: "serve wires everything for the commands, so nothing else can depend on it"},
	{pkg: "ours/exporter", only: []string{"cmd", "internal/serve"},
		why: "metrics leave through the exporter: sources and the probe do not depend on it"},
	{pkg: "ours/collector", only: []string{"cmd", "internal/serve", "exporter", "demo"},
		why: "collector and probe are independent of each other"},
	{pkg: "ours/probe", only: []string{"cmd", "internal/serve", "probe", "demo"},
		not: []string{"ours/probe/result", "ours/probe/options"},
		why: "only cmd, serve and the demo run the probe: all others use its results, which are data"},
	{pkg: "ours/probe/result", only: []string{"cmd", "internal/serve", "exporter", "probe", "demo", "doctor/check",
		"doctor/verdict", "bench"},
		why: "collector and probe are independent of each other"},
	{pkg: "ours/probe/options", only: []string{"cmd", "internal/serve", "exporter", "probe", "demo", "doctor/check",
		"bench", "internal/config"},
		why: "settings of the probe are for those who read, run or show them"},
	{pkg: "ours/doctor", only: []string{"cmd", "internal/serve", "bench"}, tests: true,
		why: "doctor judges: sources, probe and exporter do not depend on its findings, and a peer's facts travel as " +
			"bytes"},
	{pkg: "ours/bench", only: []string{"cmd", "bench", "fleet"}, tests: true,
		why: "it prints the output of commands"},
	{pkg: "ours/doctor/doctortest", tests: true,
		why: "captured machines are for tests"},
	{pkg: "ours/demo", only: []string{"cmd"},
		why: "only cmd chooses between the real and the simulated machine, so real code cannot depend on simulated data"},
	{pkg: "ours/internal/sysfstest", only: []string{"test/peers", "internal/nvml/nvmltest", "doctor/doctortest"},
		tests: true,
		why:   "simulated machines are for tests and the benchmark"},
	{pkg: "ours/internal/nvml/nvmltest", tests: true,
		why: "it is a fake driver for tests"},
	{pkg: "ours/collector/rdma", only: []string{"cmd", "internal/serve", "exporter", "internal/inventory", "demo"},
		tests: true,
		why:   "sources are independent of each other, so that each can be disabled"},
	{pkg: "ours/collector/netdev", only: []string{"cmd", "internal/serve", "exporter", "internal/inventory", "demo"},
		tests: true,
		why:   "sources are independent of each other, so that each can be disabled"},
	{pkg: "ours/collector/bond", only: []string{"cmd", "internal/serve", "exporter", "internal/inventory", "demo"},
		tests: true,
		why:   "sources are independent of each other, so that each can be disabled"},
	{pkg: "ours/collector/pcie", only: []string{"cmd", "internal/serve", "exporter", "internal/inventory", "demo"},
		tests: true,
		why:   "sources are independent of each other, so that each can be disabled"},
	{pkg: "ours/collector/collectortest", tests: true,
		why: "it has helpers for tests of sources"},
	{pkg: "ours/probe/probetest", tests: true,
		why: "it has nodes for tests"},
	{pkg: "ours/test/faults", only: []string{"test/score"}, tests: true,
		why: "it is the list of what tests plant"},
	{pkg: "ours/internal/testenv", tests: true,
		why: "it sets up the process of tests"},
	{pkg: "ours/probe/internal/fakeverbs", only: []string{"probe/probetest", "probe/internal/fakegpu"}, tests: true,
		why: "fake devices are for tests: the shipped program opens the installed libibverbs"},
	{pkg: "ours/fleet", only: []string{"cmd/railscope-bench", "cmd/railscope/fleet_gate.go", "fleet"}, tests: true,
		why: "it judges all nodes, and one node needs it only for a gate"},
	{pkg: "ours/fleet/prometheus", only: []string{"cmd/railscope-bench"}, tests: true,
		why: "it asks Prometheus for the data of all nodes: the program on every node stays small"},
	{pkg: "ours/fleet/fleettest", tests: true,
		why: "it makes fleets for tests"},
	{pkg: "github.com/prometheus/client_golang", only: []string{"exporter", "fleet/prometheus"}, tests: true,
		why: "the exporter is the only package that depends on Prometheus: sources and the probe return rows and values; " +
			"fleet asks its HTTP API"},
	{pkg: "go.opentelemetry.io", only: []string{"exporter/otlp"},
		why: "one package knows OTLP: it converts what a scrape has"},
	{pkg: "github.com/prometheus/common/config", only: []string{"internal/httpclient"},
		why: "one package makes clients of services that the user names, with their credentials and bounds"},
	{pkg: "github.com/Mellanox/rdmamap", only: []string{"internal/rdmadev"},
		why: "one package uses it, verifies its results, and keeps it off the hot path"},
	{pkg: "github.com/vishvananda/netlink", only: []string{"doctor/facts"},
		why: "only doctor needs routes and addresses; the hot path has its own few messages"},
	{pkg: "github.com/prometheus/procfs", only: []string{"internal/proc"},
		why: "one package reads /proc/PID: it adds bounds and reasons to the library"},
	{pkg: "ours/bench/report", only: []string{"cmd/railscope-bench"}, tests: true,
		why: "the program on every node stays small: reports are written by another"},
	{pkg: "gonum.org", only: []string{"bench/report"},
		why: "the program on every node stays small: one package draws plots"},
	{pkg: "ours/bench/storage", only: []string{"cmd/railscope-bench"}, tests: true,
		why: "the program on every node stays small: checkpoints are measured by another"},
	{pkg: "github.com/minio/minio-go", only: []string{"bench/storage"},
		why: "the program on every node stays small: one package knows object stores"},
	{pkg: "golang.org/x/oauth2", only: []string{"bench/storage"},
		why: "one package sends tokens, to the object store that the user names"},
	{pkg: "github.com/alecthomas/kingpin", only: []string{"cmd"},
		why: "flags are parsed in one place and passed on as values"},
	{pkg: "os/signal", only: []string{"cmd"}, tests: true,
		why: "cmd handles signals; everything else is stopped by its context"},
	{pkg: "github.com/NVIDIA/go-nvml", only: []string{"internal/nvml/library_cgo.go"},
		why: "go-nvml does not build without C and can end the process: one file keeps it behind an interface"},
	{pkg: "C", only: []string{"probe/internal/verbs", "probe/internal/linerate", "internal/nvml"},
		why: "C is in two packages that are useless without it, each beside a stub for CGO_ENABLED=0, and in a test of one"},
	{pkg: "log", only: []string{"cmd", "internal/serve", "exporter", "test/peers"}, tests: true,
		why: "packages return errors; only cmd, serve and exporter log, so that a fault is logged once"},
}

// leaf says which packages of this module a package may import. Its tests may import any.
type leaf struct {
	dir  string // the package, and all below it
	ours []string
	why  string
	also string // a package of this module, without its subpackages
	not  string // a package below dir to which this does not apply
}

var leaves = []leaf{
	{dir: "probe/result", why: "result is data that all others use: it imports nothing of the engine",
		ours: []string{"internal", "probe/internal/failure", "probe/internal/transfer", "probe/internal/worker"}},
	{dir: "probe/options", why: "options are data that all others use: they import nothing of the engine",
		ours: []string{"internal", "probe/result"}},
	{dir: "probe/internal/protocol", why: "protocol has the messages, independent of who sends them",
		ours: []string{"internal", "probe/internal/failure", "probe/internal/transfer",
			"probe/internal/worker", "probe/options", "probe/result"}},
	{dir: "probe/internal/auth", why: "auth proves tokens, independent of what is asked afterwards",
		ours: []string{"internal", "probe/internal/protocol", "probe/options"}},
	{dir: "probe/internal/history", why: "history remembers results, independent of how they are measured",
		ours: []string{"internal", "probe/result"}},
	{dir: "probe/internal/node", why: "node is shared by both roles of a round, so it imports neither",
		ours: []string{"internal", "probe/internal/auth", "probe/internal/failure", "probe/internal/history",
			"probe/internal/protocol", "probe/internal/worker", "probe/options", "probe/result"}},
	{dir: "probe/internal/control", why: "control is the connection to a peer, independent of the round",
		ours: []string{"internal", "probe/internal/auth", "probe/internal/failure", "probe/internal/protocol",
			"probe/internal/worker"}},
	{dir: "probe/internal/round", why: "round makes one round, independent of when, and of the answering side",
		ours: []string{"internal", "probe/internal/auth", "probe/internal/control", "probe/internal/failure",
			"probe/internal/history", "probe/internal/memory", "probe/internal/node",
			"probe/internal/protocol", "probe/internal/transfer", "probe/internal/verbs",
			"probe/internal/worker", "probe/options", "probe/result"}},
	{dir: "probe/internal/target", why: "target answers peers, independent of whom this node asks",
		ours: []string{"internal", "probe/internal/auth", "probe/internal/failure", "probe/internal/node",
			"probe/internal/protocol", "probe/internal/round", "probe/internal/worker", "probe/options",
			"probe/result"}},
	{dir: "probe/internal/schedule", why: "schedule decides whom to ask, independent of the answering side",
		ours: []string{"internal", "probe/internal/auth", "probe/internal/failure", "probe/internal/history",
			"probe/internal/node", "probe/internal/protocol", "probe/internal/round", "probe/options",
			"probe/result"}},
	{dir: "internal", not: "internal/serve", also: "probe/options",
		why: "internal has values and mechanisms that all other packages use, and imports none of them, except for the " +
			"options of the probe, which internal/config reads into the struct that the probe runs with"},
	{dir: "internal/lane", why: "lane is a bounded wait, independent of the work"},
	{dir: "internal/sysfs", why: "sysfs reads one value of one file"},
	{dir: "internal/rtnl", ours: []string{"internal/nlattr"}, why: "rtnl reads interfaces, independent of their use"},
	{dir: "internal/nlattr", why: "nlattr reads attributes of any protocol"},
	{dir: "internal/secret", why: "secret reads token files, independent of their use"},
	{dir: "internal/proc", ours: []string{"internal/sysfs"},
		why: "proc reads processes, independent of their use"},
	{dir: "internal/kubelet", ours: []string{"internal/sysfs"},
		why: "kubelet reads names of pods, independent of their processes"},
	{dir: "internal/state", ours: []string{"internal/lane"},
		why: "state stores sections, independent of their content"},
	{dir: "internal/nvml", ours: []string{"internal/lane", "internal/sysfs", "internal/sysfstest"},
		why: "nvml reads GPUs, independent of the use"},
	{dir: "internal/amdgpu", ours: []string{"internal/proc", "internal/rail", "internal/sysfs"},
		why: "amdgpu reads GPUs, independent of the use"},
	{dir: "internal/maintenance", ours: []string{"internal/lane"},
		why: "maintenance watches a file, independent of the consequences"},
	{dir: "internal/sysfstest", why: "fixtures must not depend on what they test"},
	{dir: "collector/sampler", also: "collector", ours: []string{"internal/rail", "internal/sysfs", "internal/ethtool",
		"internal/stats"},
		why: "the sampler runs between scrapes and never waits for a source, so it imports none"},
	{dir: "internal/httpclient", why: "httpclient makes clients, independent of what they ask"},
	{dir: "exporter/otlp", ours: []string{"collector", "internal/httpclient", "internal/terminal"},
		why: "it pushes what a scrape has gathered, and reads no source"},
	{dir: "exporter/table", ours: []string{"collector", "internal/terminal", "internal/text"},
		why: "the table stores samples, independent of their sources"},
	{dir: "internal/status", ours: []string{"internal/finding", "internal/priority", "internal/proof", "internal/terminal"},
		why: "status is what commands read of a running railscope, independent of how it is made"},
	{dir: "exporter/page", ours: []string{"internal/finding", "internal/priority", "internal/proof", "internal/rail",
		"internal/secret", "internal/stats", "internal/status", "internal/terminal", "internal/units"},
		why: "the page renders a snapshot: it reads and judges nothing itself"},
	{dir: "internal/terminal", ours: []string{"internal/secret"},
		why: "terminal formats text, independent of its content"},
	{dir: "internal/text", ours: []string{"internal/terminal"},
		why: "text cleans text, independent of its content"},
	{dir: "dashboards", why: "dashboards are text; a test checks the names of metrics in them"},
	{dir: "internal/rail", ours: []string{"internal/sysfs", "internal/lane", "internal/ethtool"},
		why: "collector, probe and exporter all depend on rail, so it depends on little"},
}

// TestArrows applies the rules to this module.
func TestArrows(t *testing.T) {
	breaches, err := check(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

// check returns the violations in the module at root, without nested modules. Build constraints are ignored: a rule
// applies to every platform.
func check(root string) ([]string, error) {
	var breaches []string
	err := walk(root, func(file string, src []byte) error {
		if path.Ext(file) != ".go" {
			return nil
		}
		found, err := checkFile(file, src)
		breaches = append(breaches, found...)
		return err
	})
	return breaches, err
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// checkFile returns the violations of one file, whose name is relative to the module.
func checkFile(file string, src []byte) ([]string, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var breaches []string
	breach := func(at token.Pos, format string, args ...any) {
		breaches = append(breaches, fmt.Sprintf("%s: ", fset.Position(at))+fmt.Sprintf(format, args...))
	}
	for _, imp := range tree.Imports {
		name, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return nil, err
		}
		if own, ok := strings.CutPrefix(name, module); ok {
			name = "ours/" + own
		}
		for _, why := range broken(file, name) {
			breach(imp.Pos(), "must not import %s: %s", imp.Path.Value, why)
		}
	}
	if output := withinAny(file, []string{"cmd", "bench", "fleet"}) && !strings.HasSuffix(file, "_test.go"); output {
		ast.Inspect(tree, func(n ast.Node) bool {
			if call := written(n); call != "" && !slices.Contains(ownFiles, file) {
				breach(n.Pos(), "must not use os.%s: internal/outfile writes what a user names, and replaces no device", call)
			}
			return true
		})
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			breach(f.Pos(), "must not have func init: cmd constructs everything, in a visible order")
		}
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !strings.HasSuffix(file, "_test.go") {
			for _, s := range g.Specs {
				if v := s.(*ast.ValueSpec); isState(v) && !isEmbedded(g.Doc, v.Doc) {
					breach(v.Pos(),
						"must not have the package variable %s: state is in fields of values that cmd constructs",
						v.Names[0])
				}
			}
		}
	}
	return breaches, nil
}

// ownFiles write files that no user names, or whose writes are measured.
var ownFiles = []string{"cmd/railscope/demo.go", "bench/storage/directory.go"}

// written returns the function of package os that n uses to write or replace a file by its name; empty: none.
func written(n ast.Node) string {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := s.X.(*ast.Ident)
	writes := []string{"WriteFile", "Create", "CreateTemp", "Rename", "OpenFile", "Link", "Symlink"}
	if !ok || pkg.Name != "os" || !slices.Contains(writes, s.Sel.Name) {
		return ""
	}
	return s.Sel.Name
}

// isEmbedded reports whether a comment embeds files.
func isEmbedded(groups ...*ast.CommentGroup) bool {
	for _, g := range groups {
		if g != nil && slices.ContainsFunc(g.List, func(c *ast.Comment) bool {
			return strings.HasPrefix(c.Text, "//go:embed ")
		}) {
			return true
		}
	}
	return false
}

// isState reports whether a package variable can change: it is empty at first, a number or a word, or made by make
// or new. Tables, errors and regular expressions are constant.
func isState(v *ast.ValueSpec) bool {
	if len(v.Values) == 0 {
		return true
	}
	for _, value := range v.Values {
		switch e := value.(type) {
		case *ast.BasicLit, *ast.Ident:
			return v.Names[0].Name != "_"
		case *ast.CallExpr:
			if f, ok := e.Fun.(*ast.Ident); ok && (f.Name == "make" || f.Name == "new") {
				return true
			}
		}
	}
	return false
}

// broken returns the reasons why file must not import pkg.
func broken(file, pkg string) []string {
	test := strings.HasSuffix(file, "_test.go")
	dir := path.Dir(file)
	var why []string
	for _, r := range rules {
		// parts of a package may import each other, and its external tests may import it
		home := within("ours/"+dir, r.pkg)
		if within(pkg, r.pkg) && !withinAny(pkg, r.not) && !home && (!test || !r.tests) && !withinAny(file, r.only) {
			why = append(why, r.why)
		}
	}
	own, ours := strings.CutPrefix(pkg, "ours/")
	for _, l := range leaves {
		if ours && within(dir, l.dir) && dir != l.not && !within(own, l.dir) && !withinAny(own, l.ours) &&
			own != l.also &&
			!test {
			why = append(why, l.why)
		}
	}
	return why
}

// within reports whether name is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func withinAny(name string, dirs []string) bool {
	for _, d := range dirs {
		if within(name, d) {
			return true
		}
	}
	return false
}

// TestCheckFindsBreaches checks a small tree with one violation of each rule, and with allowed imports.
func TestCheckFindsBreaches(t *testing.T) {
	reason := map[string]string{}
	for _, r := range rules {
		reason[r.pkg] = r.why
	}
	for _, l := range leaves {
		reason[l.dir] = l.why
	}
	reason["init"] = "must not have func init"
	reason["state"] = "must not have the package variable"
	reason["output"] = "internal/outfile writes what a user names"
	planted := map[string]bool{}
	const tag = "//go:build never\n\n"
	ours := func(dir string) string { return `import _ "` + module + dir + `"` }
	for _, tc := range []struct{ file, src, breaks string }{
		{"exporter/a.go", ours("cmd/railscope"), "ours/cmd"},
		{"internal/inventory/a.go", ours("dashboards"), "internal"},
		{"internal/inventory/a.go", ours("internal/rail"), ""},
		{"internal/inventory/a.go", ours("probe/options"), "ours/probe/options"},
		{"internal/config/a.go", ours("probe/options"), ""},
		{"cmd/railscope/a_test.go", ours("cmd/railscope"), ""},
		{"internal/serve/a.go", ours("exporter/scrape") + "\n" + ours("probe") + "\n" + ours("doctor/check"), ""},
		{"internal/serve/a.go", ours("demo"), "ours/demo"},
		{"exporter/a.go", ours("internal/serve"), "ours/internal/serve"},
		{"collector/a.go", ours("exporter"), "ours/exporter"},
		{"collector/a_test.go", ours("exporter"), "ours/exporter"},
		{"exporter/a_test.go", ours("exporter"), ""},
		{"probe/a.go", ours("collector"), "ours/collector"},
		{"collector/a.go", ours("probe"), "ours/probe"},
		{"collector/a.go", ours("probe/result"), "ours/probe/result"},
		{"collector/a.go", ours("probe/options"), "ours/probe/options"},
		{"probe/result/a.go", ours("probe/internal/round"), "probe/result"},
		{"probe/options/a.go", ours("probe/internal/node"), "probe/options"},
		{"probe/internal/protocol/a.go", ours("probe/internal/node"), "probe/internal/protocol"},
		{"probe/internal/auth/a.go", ours("probe/internal/node"), "probe/internal/auth"},
		{"probe/internal/history/a.go", ours("probe/internal/node"), "probe/internal/history"},
		{"probe/internal/node/a.go", ours("probe/internal/round"), "probe/internal/node"},
		{"probe/internal/control/a.go", ours("probe/internal/node"), "probe/internal/control"},
		{"probe/internal/round/a.go", ours("probe/internal/schedule"), "probe/internal/round"},
		{"probe/internal/target/a.go", ours("probe/internal/schedule"), "probe/internal/target"},
		{"probe/internal/schedule/a.go", ours("probe/internal/target"), "probe/internal/schedule"},
		{"probe/a.go", ours("doctor"), "ours/doctor"},
		{"doctor/a.go", ours("collector"), "ours/collector"},
		{"doctor/check/a.go", ours("probe"), "ours/probe"},
		{"doctor/check/a.go", ours("probe/result"), ""},
		{"probe/a.go", ours("bench"), "ours/bench"},
		{"cmd/railscope/a.go", ours("fleet"), "ours/fleet"},
		{"cmd/railscope/fleet_gate.go", ours("fleet/gate"), ""},
		{"cmd/railscope/fleet_gate.go", ours("fleet/prometheus"), "ours/fleet/prometheus"},
		{"cmd/railscope-bench/a.go", ours("fleet"), ""},
		{"fleet/a.go", ours("fleet/fleettest"), "ours/fleet/fleettest"},
		{"doctor/a.go", ours("internal/rail"), ""},
		{"exporter/a.go", ours("demo"), "ours/demo"},
		{"collector/netdev/a.go", ours("collector/rdma"), "ours/collector/rdma"},
		{"collector/rdma/a.go", ours("collector/netdev"), "ours/collector/netdev"},
		{"collector/pcie/a.go", ours("collector/bond"), "ours/collector/bond"},
		{"collector/bond/a.go", ours("collector/pcie"), "ours/collector/pcie"},
		{"exporter/a_test.go", ours("collector/rdma"), ""},
		{"collector/rdma/a.go", ours("collector/collectortest"), "ours/collector/collectortest"},
		{"collector/rdma/a_test.go", ours("collector/collectortest"), ""},
		{"internal/nvml/a.go", ours("internal/nvml/nvmltest"), "ours/internal/nvml/nvmltest"},
		{"internal/nvml/a_test.go", ours("internal/nvml/nvmltest"), ""},
		{"demo/a.go", ours("collector") + "\n" + ours("probe"), ""},
		{"probe/a.go", ours("probe/internal/verbs"), ""},
		{"probe/internal/verbs/a.go", ours("probe/internal/fakeverbs"), "ours/probe/internal/fakeverbs"},
		{"probe/internal/verbs/a_test.go", ours("probe/internal/fakeverbs"), ""},
		{"exporter/a.go", ours("probe/result") + "\n" + ours("collector") + "\n" + ours("internal/rail"), ""},
		{"internal/config/a.go", ours("internal/sysfstest"), "ours/internal/sysfstest"},
		{"internal/rail/a_test.go", ours("internal/sysfstest"), ""},
		{"cmd/railscope/a.go", ours("probe/probetest"), "ours/probe/probetest"},
		{"cmd/railscope/a_test.go", ours("probe/probetest"), ""},
		{"cmd/railscope/a.go", ours("test/faults"), "ours/test/faults"},
		{"collector/a.go", ours("internal/testenv"), "ours/internal/testenv"},
		{"collector/a_test.go", ours("internal/testenv"), ""},
		{"collector/a.go", `import _ "github.com/prometheus/client_golang/prometheus"`,
			"github.com/prometheus/client_golang"},
		{"collector/a.go", tag + `import _ "github.com/prometheus/client_golang/prometheus"`,
			"github.com/prometheus/client_golang"},
		{"collector/a_test.go", `import _ "github.com/prometheus/client_golang/prometheus/testutil"`, ""},
		{"doctor/facts/a.go", ours("doctor/doctortest"), "ours/doctor/doctortest"},
		{"collector/a.go", `import _ "github.com/Mellanox/rdmamap"`, "github.com/Mellanox/rdmamap"},
		{"collector/a.go", `import _ "github.com/vishvananda/netlink"`, "github.com/vishvananda/netlink"},
		{"collector/a.go", `import _ "github.com/prometheus/procfs"`, "github.com/prometheus/procfs"},
		{"exporter/a.go", `import _ "github.com/alecthomas/kingpin/v2"`, "github.com/alecthomas/kingpin"},
		{"exporter/a.go", `import _ "os/signal"`, "os/signal"},
		{"cmd/railscope/a.go", ours("bench/report"), "ours/bench/report"},
		{"cmd/railscope/a.go", ours("bench/storage"), "ours/bench/storage"},
		{"bench/a.go", `import _ "github.com/minio/minio-go/v7"`, "github.com/minio/minio-go"},
		{"probe/a.go", `import _ "golang.org/x/oauth2"`, "golang.org/x/oauth2"},
		{"bench/a.go", `import _ "gonum.org/v1/plot"`, "gonum.org"},
		{"exporter/scrape/a.go", `import _ "go.opentelemetry.io/proto/otlp/metrics/v1"`, "go.opentelemetry.io"},
		{"exporter/otlp/a.go", `import _ "go.opentelemetry.io/proto/otlp/metrics/v1"`, ""},
		{"fleet/a.go", `import _ "github.com/prometheus/common/config"`, "github.com/prometheus/common/config"},
		{"internal/httpclient/a.go", ours("internal/text"), "internal/httpclient"},
		{"exporter/otlp/a.go", ours("exporter/scrape"), "exporter/otlp"},
		{"collector/gpu.go", `import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`, "github.com/NVIDIA/go-nvml"},
		{"internal/nvml/library_cgo.go", `import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`, ""},
		{"collector/a.go", `import "C"`, "C"},
		{"probe/internal/verbs/a.go", `import "C"`, ""},
		{"collector/a.go", `import _ "log/slog"`, "log"},
		{"internal/lane/a.go", ours("internal/sysfs"), "internal/lane"},
		{"internal/sysfs/a.go", ours("internal/lane"), "internal/sysfs"},
		{"internal/rtnl/a.go", ours("internal/sysfs"), "internal/rtnl"},
		{"internal/nlattr/a.go", ours("internal/sysfs"), "internal/nlattr"},
		{"internal/text/a.go", ours("internal/sysfs"), "internal/text"},
		{"internal/text/a.go", ours("internal/terminal"), ""},
		{"internal/secret/a.go", ours("internal/lane"), "internal/secret"},
		{"internal/proc/a.go", ours("internal/kubelet"), "internal/proc"},
		{"internal/proc/a.go", ours("internal/sysfs"), ""},
		{"internal/kubelet/a.go", ours("internal/proc"), "internal/kubelet"},
		{"internal/state/a.go", ours("internal/rail"), "internal/state"},
		{"internal/state/a.go", ours("internal/lane"), ""},
		{"internal/nvml/a.go", ours("internal/rail"), "internal/nvml"},
		{"internal/amdgpu/a.go", ours("internal/nvml"), "internal/amdgpu"},
		{"internal/amdgpu/a.go", ours("internal/rail"), ""},
		{"internal/maintenance/a.go", ours("internal/nvml"), "internal/maintenance"},
		{"internal/sysfstest/a.go", ours("internal/rail"), "internal/sysfstest"},
		{"dashboards/a.go", ours("internal/sysfs"), "dashboards"},
		{"internal/terminal/a.go", ours("internal/sysfs"), "internal/terminal"},
		{"internal/rail/a.go", ours("internal/rdmanl"), "internal/rail"},
		{"collector/sampler/a.go", ours("collector/nccl"), "collector/sampler"},
		{"collector/sampler/a.go", ours("internal/rail") + "\n" + ours("internal/ethtool"), ""},
		{"internal/rail/a.go", ours("internal/sysfs") + "\n" + ours("internal/lane"), ""},
		{"exporter/table/a.go", ours("exporter/scrape"), "exporter/table"},
		{"internal/status/a.go", ours("internal/statussock"), "internal/status"},
		{"exporter/page/a.go", ours("probe/result"), "exporter/page"},
		{"collector/a.go", "func init() {}", "init"},
		{"cmd/railscope/a.go", "func a() { os.WriteFile(path, nil, 0) }", "output"},
		{"bench/a.go", "func a() { rename(os.Rename) }", "output"},
		{"cmd/railscope/a_test.go", "func a() { os.WriteFile(path, nil, 0) }", ""},
		{"internal/state/a.go", "func a() { os.Rename(path, path) }", ""},
		{"collector/a.go", "var scrapes int", "state"},
		{"collector/a.go", "var known = make(map[string]bool)", "state"},
		{"collector/a.go", "var on = true", "state"},
		{"collector/a.go", "var names = []string{\"a\"}", ""},
		{"collector/a_test.go", "var scrapes int", ""},
		{"collector/a.go", "import _ \"embed\"\n\n//go:embed a.go\nvar source string", ""},
		{"collector/a.go", "type t int\n\nfunc (t) init() {}", ""},
		{"collector/testdata/a.go", ours("cmd/railscope"), ""},
		{"tools/a.go", ours("cmd/railscope"), ""},
	} {
		root := t.TempDir()
		write(t, "module tools\n", root, "tools/go.mod")
		pkg, body, tagged := "package p\n\n", tc.src, strings.HasPrefix(tc.src, tag)
		if tagged {
			pkg, body = tag+pkg, strings.TrimPrefix(tc.src, tag)
		}
		write(t, pkg+body+"\n", root, tc.file)
		got, err := check(root)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case tc.breaks == "" && len(got) > 0:
			t.Errorf("%s with %q is allowed; got %q", tc.file, tc.src, got)
		case tc.breaks == "":
		case len(got) != 1 || !strings.Contains(got[0], tc.file) || !strings.Contains(got[0], reason[tc.breaks]):
			t.Errorf("%s with %q breaks %s; got %q", tc.file, tc.src, tc.breaks, got)
		default:
			planted[tc.breaks] = true
		}
	}
	for name := range reason {
		if !planted[name] {
			t.Errorf("no breach of the rule about %s is planted here", name)
		}
	}
}

func write(t *testing.T, content string, elem ...string) {
	t.Helper()
	file := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFileNames rejects file names with which the module could not be downloaded: golang.org/x/mod/zip refuses a
// colon, which every PCI address has. Captures with colons are stored in a txtar file.
func TestFileNames(t *testing.T) {
	out, err := exec.Command("git", "-C", filepath.Join("..", ".."), "ls-files", "-z").Output()
	if _, failed := errors.AsType[*exec.ExitError](err); failed || errors.Is(err, exec.ErrNotFound) {
		t.Skip("not a git checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		if strings.Contains(name, ":") {
			t.Errorf("%s: a colon in a file name makes the module impossible to download", name)
		}
	}
}
