package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	only  []string // files, or directories with all below them, that may; nil is nobody
	tests bool     // test files may, too, wherever they are
	why   string
}

var rules = []rule{
	{pkg: "ours/cmd",
		why: "cmd wires everything, so nothing can stand on it"},
	{pkg: "ours/exporter", only: []string{"cmd"},
		why: "a metric leaves by the exporter: who reads or probes does not know where to"},
	{pkg: "ours/collector", only: []string{"cmd", "exporter", "demo"},
		why: "collector and probe never meet: what is read must not depend on what is probed, nor the reverse"},
	{pkg: "ours/probe", only: []string{"cmd", "exporter", "probe", "demo"},
		why: "collector and probe never meet: what is read must not depend on what is probed, nor the reverse"},
	{pkg: "ours/doctor", only: []string{"cmd"},
		why: "doctor judges at one moment what was read for it: who reads, probes or exports does not stand on its " +
			"opinion, and a peer's facts travel as bytes"},
	{pkg: "ours/doctor/doctortest", tests: true,
		why: "captured machines are for tests"},
	{pkg: "ours/demo", only: []string{"cmd"},
		why: "the demo is a machine to stand on, and only cmd chooses the machine: nothing that is real can come " +
			"to lean on what is made up"},
	{pkg: "ours/internal/sysfstest", only: []string{"test/peers", "internal/nvml/nvmltest", "doctor/doctortest"},
		tests: true,
		why:   "made-up machines are for tests and for the benchmark"},
	{pkg: "ours/internal/nvml/nvmltest", tests: true,
		why: "it stands for a driver in tests"},
	{pkg: "ours/collector/rdma", only: []string{"cmd", "exporter", "internal/inventory", "demo"}, tests: true,
		why: "a source knows no other, so that each can be switched off: nobody stands on rdma"},
	{pkg: "ours/collector/netdev", only: []string{"cmd", "exporter", "internal/inventory", "demo"}, tests: true,
		why: "a source knows no other, so that each can be switched off: nobody stands on netdev"},
	{pkg: "ours/collector/bond", only: []string{"cmd", "exporter", "internal/inventory", "demo"}, tests: true,
		why: "a source knows no other, so that each can be switched off: nobody stands on bond"},
	{pkg: "ours/collector/pcie", only: []string{"cmd", "exporter", "internal/inventory", "demo"}, tests: true,
		why: "a source knows no other, so that each can be switched off: nobody stands on pcie"},
	{pkg: "ours/collector/collectortest", tests: true,
		why: "it holds what tests of sources share"},
	{pkg: "ours/internal/testenv", tests: true,
		why: "it sets up the process of tests"},
	{pkg: "ours/probe/internal/fakeverbs", tests: true,
		why: "made-up devices are for tests: what is shipped opens the libibverbs that is there"},
	{pkg: "github.com/prometheus/client_golang", only: []string{"exporter"}, tests: true,
		why: "the exporter is the only package that knows Prometheus: readers and probes give rows and values"},
	{pkg: "github.com/Mellanox/rdmamap", only: []string{"internal/rdmadev"},
		why: "one package asks it: it verifies the answers, and keeps the library off the hot path"},
	{pkg: "github.com/vishvananda/netlink", only: []string{"doctor/facts"},
		why: "doctor asks for routes and addresses; the hot path has its own few messages"},
	{pkg: "github.com/prometheus/procfs", only: []string{"internal/proc"},
		why: "one package reads /proc/PID: it bounds what the library does not, and gives each failure a reason"},
	{pkg: "github.com/alecthomas/kingpin", only: []string{"cmd"},
		why: "flags are parsed in one place and passed on as values: no package has flags of its own"},
	{pkg: "os/signal", only: []string{"cmd"}, tests: true,
		why: "the process belongs to cmd: everything else is told to stop by its context"},
	{pkg: "github.com/NVIDIA/go-nvml", only: []string{"internal/nvml/library_cgo.go"},
		why: "go-nvml does not build without C and can end the process: one file keeps it behind an interface of ours"},
	{pkg: "C", only: []string{"probe/internal/verbs", "internal/nvml"},
		why: "C is in two packages that are useless without it, each beside a stub for CGO_ENABLED=0"},
	{pkg: "log", only: []string{"cmd", "exporter", "test/peers"}, tests: true,
		why: "libraries return errors, only the edge logs: a fault is counted and said once, not by whoever meets it"},
}

// leaf says which of our own packages a package may stand on. Its tests are
// free: nothing stands on them.
type leaf struct {
	dir  string // the package, and all below it
	ours []string
	why  string
	also string // a package of ours, without what is below it
}

var leaves = []leaf{
	{dir: "internal", why: "internal is below all other packages: it holds values and mechanisms, and cmd turns " +
		"them into options"},
	{dir: "internal/lane", why: "lane is at the bottom: a bounded wait that knows nothing of what hangs"},
	{dir: "internal/sysfs", why: "sysfs is at the bottom: one file, one value, one reason"},
	{dir: "internal/rtnl", why: "rtnl is at the bottom: what the kernel says of interfaces, and nothing of what for"},
	{dir: "internal/resident", why: "resident is at the bottom: pages of this process, and nothing of what it does"},
	{dir: "internal/secret", why: "secret is at the bottom: what a token file holds, and nothing of what for"},
	{dir: "internal/proc", ours: []string{"internal/sysfs"},
		why: "proc is at the bottom: what procfs reports of a process, and nothing of what for"},
	{dir: "internal/kubelet", ours: []string{"internal/sysfs"},
		why: "kubelet is at the bottom: names of pods, and nothing of whose they are"},
	{dir: "internal/state", ours: []string{"internal/lane"},
		why: "state is at the bottom: sections of a file, and nothing of what is in them"},
	{dir: "internal/nvml", ours: []string{"internal/lane", "internal/sysfs", "internal/sysfstest"},
		why: "nvml is at the bottom: what the driver says of GPUs, and nothing of what for"},
	{dir: "internal/maintenance", ours: []string{"internal/lane"},
		why: "maintenance is at the bottom: whether a file exists, and nothing of what to do about it"},
	{dir: "internal/sysfstest", why: "fixtures must not depend on what they test"},
	{dir: "collector/sampler", also: "collector", ours: []string{"internal/rail", "internal/sysfs", "internal/ethtool"},
		why: "the sampler runs all the time beside what is read when scraped: neither waits for the other, so it " +
			"knows none of the sources"},
	{dir: "exporter/table", ours: []string{"collector", "internal/text"},
		why: "the table knows rows and samples, and nothing of who reads them"},
	{dir: "exporter/page", ours: []string{"internal/rail", "internal/terminal"},
		why: "the page draws what it is handed: it reads nothing, and judges nothing that doctor or a series does"},
	{dir: "internal/terminal", why: "terminal is at the bottom: how text is shown, and nothing of what it says"},
	{dir: "internal/text", ours: []string{"internal/terminal"},
		why: "text is at the bottom: what text from outside becomes, and nothing of what it says"},
	{dir: "dashboards", why: "dashboards are text: they name metrics, and a test that knows the rows checks the names"},
	{dir: "internal/rail", ours: []string{"internal/sysfs", "internal/lane"},
		why: "collector, probe and exporter all stand on what a rail is, so it stands on as little as can be"},
}

// TestArrows holds the rules for this module.
func TestArrows(t *testing.T) {
	breaches, err := check(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

// check returns the breaches in the module at root, nested modules left out.
// Build constraints are not looked at: a rule holds on every platform.
func check(root string) ([]string, error) {
	var breaches []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || exists(file, "go.mod")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		found, err := checkFile(filepath.ToSlash(rel), src)
		breaches = append(breaches, found...)
		return err
	})
	return breaches, err
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// checkFile returns the breaches of one file, named relative to the module.
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
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			breach(f.Pos(), "must not have func init: cmd constructs everything, in an order that can be read there")
		}
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !strings.HasSuffix(file, "_test.go") {
			for _, s := range g.Specs {
				if v := s.(*ast.ValueSpec); isState(v) && !isEmbedded(g.Doc, v.Doc) {
					breach(v.Pos(),
						"must not have the package variable %s: what changes is a field of a value that cmd constructs",
						v.Names[0])
				}
			}
		}
	}
	return breaches, nil
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

// isState reports whether a package variable is there to change: it begins empty, with a number or a word, or is made.
// Tables, errors and regular expressions have a value that stays.
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
		home := within("ours/"+dir, r.pkg) // its parts may import each other, and its external tests it
		if within(pkg, r.pkg) && !home && (!test || !r.tests) && !withinAny(file, r.only) {
			why = append(why, r.why)
		}
	}
	own, ours := strings.CutPrefix(pkg, "ours/")
	for _, l := range leaves {
		if ours && within(dir, l.dir) && !within(own, l.dir) && !withinAny(own, l.ours) && own != l.also && !test {
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

// TestCheckFindsBreaches plants one breach of each rule, and imports that are
// allowed, in a small tree.
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
	planted := map[string]bool{}
	const tag = "//go:build never\n\n"
	ours := func(dir string) string { return `import _ "` + module + dir + `"` }
	for _, tc := range []struct{ file, src, breaks string }{
		{"exporter/a.go", ours("cmd/railscope"), "ours/cmd"},
		{"internal/inventory/a.go", ours("dashboards"), "internal"},
		{"internal/inventory/a.go", ours("internal/rail"), ""},
		{"cmd/railscope/a_test.go", ours("cmd/railscope"), ""},
		{"collector/a.go", ours("exporter"), "ours/exporter"},
		{"collector/a_test.go", ours("exporter"), "ours/exporter"},
		{"exporter/a_test.go", ours("exporter"), ""},
		{"probe/a.go", ours("collector"), "ours/collector"},
		{"collector/a.go", ours("probe"), "ours/probe"},
		{"probe/a.go", ours("doctor"), "ours/doctor"},
		{"doctor/a.go", ours("collector"), "ours/collector"},
		{"doctor/a.go", ours("probe"), "ours/probe"},
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
		{"exporter/a.go", ours("probe") + "\n" + ours("collector") + "\n" + ours("internal/rail"), ""},
		{"internal/config/a.go", ours("internal/sysfstest"), "ours/internal/sysfstest"},
		{"internal/rail/a_test.go", ours("internal/sysfstest"), ""},
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
		{"collector/gpu.go", `import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`, "github.com/NVIDIA/go-nvml"},
		{"internal/nvml/library_cgo.go", `import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`, ""},
		{"collector/a.go", `import "C"`, "C"},
		{"probe/internal/verbs/a.go", `import "C"`, ""},
		{"collector/a.go", `import _ "log/slog"`, "log"},
		{"internal/lane/a.go", ours("internal/sysfs"), "internal/lane"},
		{"internal/sysfs/a.go", ours("internal/lane"), "internal/sysfs"},
		{"internal/rtnl/a.go", ours("internal/sysfs"), "internal/rtnl"},
		{"internal/text/a.go", ours("internal/sysfs"), "internal/text"},
		{"internal/text/a.go", ours("internal/terminal"), ""},
		{"internal/secret/a.go", ours("internal/lane"), "internal/secret"},
		{"internal/resident/a.go", ours("internal/lane"), "internal/resident"},
		{"internal/proc/a.go", ours("internal/kubelet"), "internal/proc"},
		{"internal/proc/a.go", ours("internal/sysfs"), ""},
		{"internal/kubelet/a.go", ours("internal/proc"), "internal/kubelet"},
		{"internal/state/a.go", ours("internal/rail"), "internal/state"},
		{"internal/state/a.go", ours("internal/lane"), ""},
		{"internal/nvml/a.go", ours("internal/rail"), "internal/nvml"},
		{"internal/maintenance/a.go", ours("internal/nvml"), "internal/maintenance"},
		{"internal/sysfstest/a.go", ours("internal/rail"), "internal/sysfstest"},
		{"dashboards/a.go", ours("internal/sysfs"), "dashboards"},
		{"internal/terminal/a.go", ours("internal/sysfs"), "internal/terminal"},
		{"internal/rail/a.go", ours("internal/rdmanl"), "internal/rail"},
		{"collector/sampler/a.go", ours("collector/nccl"), "collector/sampler"},
		{"collector/sampler/a.go", ours("internal/rail") + "\n" + ours("internal/ethtool"), ""},
		{"internal/rail/a.go", ours("internal/sysfs") + "\n" + ours("internal/lane"), ""},
		{"exporter/table/a.go", ours("exporter/scrape"), "exporter/table"},
		{"exporter/page/a.go", ours("probe"), "exporter/page"},
		{"collector/a.go", "func init() {}", "init"},
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

// TestFileNames keeps names out of the repository with which the module could
// not be downloaded: golang.org/x/mod/zip refuses a colon, which every PCI
// address has. Captures with such names go into a txtar file.
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
