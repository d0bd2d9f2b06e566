package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the figures of testdata/exceptions.txt to those of today")

// measures are what the shipped code may reach. What is above them stands in testdata/exceptions.txt with its figure,
// which may only fall.
var measures = map[string]int{
	"files":   16,  // in a package; commands have one each, so cmd is exempt
	"lines":   400, // in a file of Go or C
	"length":  60,  // lines of a function
	"fields":  15,  // in a struct
	"methods": 30,  // methods of a type
}

// TestMeasures holds the measures: nothing new is above them, and what is above them does not grow.
func TestMeasures(t *testing.T) {
	now, err := measure(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "exceptions.txt")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	excepted, err := parseExceptions(raw)
	if err != nil {
		t.Fatal(err)
	}
	complaints, lowered := compare(now, excepted)
	if *update {
		if err := os.WriteFile(file, formatExceptions(lowered), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range complaints {
		t.Error(c)
	}
}

// compare returns what is wrong with the figures of today, and the exceptions without what has become better.
func compare(now, excepted map[string]int) (complaints []string, lowered map[string]int) {
	lowered = map[string]int{}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		kind, _, _ := strings.Cut(what, " ")
		limit, known := excepted[what]
		switch {
		case !known:
			complaints = append(complaints, fmt.Sprintf("%s: %d, at most %d: split it", what, now[what], measures[kind]))
			continue
		case now[what] > limit:
			complaints = append(complaints, fmt.Sprintf("%s: %d, at most %d as before: split it", what, now[what], limit))
		case now[what] < limit:
			complaints = append(complaints, fmt.Sprintf("%s: %d, before %d: run go test ./internal/arch -update", what,
				now[what], limit))
		}
		lowered[what] = min(now[what], limit)
	}
	for _, what := range slices.Sorted(maps.Keys(excepted)) {
		if _, still := now[what]; !still {
			complaints = append(complaints, what+": no longer above its measure: run go test ./internal/arch -update")
		}
	}
	return complaints, lowered
}

// measure returns what is above its measure in the shipped code at root: "kind name" and the figure.
func measure(root string) (map[string]int, error) {
	all := map[string]int{}
	err := walk(root, func(file string, src []byte) error {
		ext := path.Ext(file)
		if strings.HasSuffix(file, "_test.go") || within(file, "test") || ext != ".go" && ext != ".c" && ext != ".h" {
			return nil
		}
		all["lines "+file] = bytes.Count(src, []byte("\n"))
		if ext != ".go" {
			return nil
		}
		if !within(file, "cmd") {
			all["files "+path.Dir(file)]++
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		measureTree(fset, tree, path.Dir(file), all)
		return nil
	})
	maps.DeleteFunc(all, func(what string, n int) bool {
		kind, _, _ := strings.Cut(what, " ")
		return n <= measures[kind]
	})
	return all, err
}

// measureTree adds the functions, structs and methods of a file in dir.
func measureTree(fset *token.FileSet, tree *ast.File, dir string, all map[string]int) {
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := dir + "." + f.Name.Name
		if f.Recv != nil {
			owner := dir + "." + receiver(f.Recv.List[0].Type)
			all["methods "+owner]++
			name = owner + "." + f.Name.Name
		}
		all["length "+name] = max(all["length "+name], fset.Position(f.End()).Line-fset.Position(f.Pos()).Line+1)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			all["fields "+dir+"."+spec.Name.Name] = s.Fields.NumFields()
		}
		return true
	})
}

// receiver is the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// walk calls do for each file of the module at root, without nested modules.
func walk(root string, do func(file string, src []byte) error) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || exists(file, "go.mod")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".c", ".h"}, path.Ext(file)) {
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
		return do(filepath.ToSlash(rel), src)
	})
}

func parseExceptions(raw []byte) (map[string]int, error) {
	all := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		what, figure, ok := cutLast(strings.TrimSpace(line))
		n, err := strconv.Atoi(figure)
		if !ok || err != nil {
			return nil, fmt.Errorf("exceptions: %q is not a kind, a name and a figure", line)
		}
		all[what] = n
	}
	return all, nil
}

func cutLast(s string) (before, after string, found bool) {
	at := strings.LastIndex(s, " ")
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+1:], true
}

func formatExceptions(all map[string]int) []byte {
	var b bytes.Buffer
	for _, what := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %d\n", what, all[what])
	}
	return b.Bytes()
}

// TestCompare: what is new, has grown, has shrunk or is gone is said; the exceptions never grow.
func TestCompare(t *testing.T) {
	excepted := map[string]int{"lines a.go": 450, "lines b.go": 450, "lines c.go": 450, "lines d.go": 450}
	now := map[string]int{"lines a.go": 450, "lines b.go": 451, "lines c.go": 449, "lines e.go": 401}
	complaints, lowered := compare(now, excepted)
	want := []string{
		"lines b.go: 451, at most 450 as before: split it",
		"lines c.go: 449, before 450: run go test ./internal/arch -update",
		"lines e.go: 401, at most 400: split it",
		"lines d.go: no longer above its measure: run go test ./internal/arch -update",
	}
	if !slices.Equal(complaints, want) {
		t.Errorf("complaints:\n%q\nwant\n%q", complaints, want)
	}
	if want := map[string]int{"lines a.go": 450, "lines b.go": 450, "lines c.go": 449}; !maps.Equal(lowered, want) {
		t.Errorf("lowered to %v, want %v", lowered, want)
	}
}

// TestMeasure: what is above a measure is found under its name, and test files are not measured.
func TestMeasure(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "p")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	long := "package p\n\ntype t[K any] struct {" + strings.Repeat("a, ", 15) + "b int }\n\nfunc f() {" +
		strings.Repeat("\n", 60) + "}\n"
	for n := range 31 {
		long += fmt.Sprintf("\nfunc (x *t[K]) m%d() {}\n", n)
	}
	files := map[string]string{"a.go": long, "a_test.go": strings.ReplaceAll(long, "t[K", "u[K"),
		"b.c": strings.Repeat("\n", 401)}
	for n := range 16 {
		files[fmt.Sprintf("x%d.go", n)] = "package p\n"
	}
	for name, src := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := measure(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"fields p.t": 16, "files p": 17, "length p.f": 61, "lines p/b.c": 401, "methods p.t": 31}
	if !maps.Equal(got, want) {
		t.Errorf("measured %v, want %v", got, want)
	}
}
