package failure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// TestKnown: the lists contain every constant of the source once.
func TestKnown(t *testing.T) {
	listed := map[string]map[string]int{"Stage": {}, "Reason": {}}
	for _, s := range Stages() {
		listed["Stage"][string(s)]++
	}
	for _, r := range Reasons() {
		listed["Reason"][string(r)]++
	}
	//nolint:staticcheck // one package, no build constraints
	packages, err := parser.ParseDir(token.NewFileSet(), ".", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, file := range packages["failure"].Files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || len(spec.Values) != 1 {
				return true
			}
			kind, _ := spec.Type.(*ast.Ident)
			value, _ := spec.Values[0].(*ast.BasicLit)
			if kind == nil || value == nil || listed[kind.Name] == nil {
				return true
			}
			declared++
			word, _ := strconv.Unquote(value.Value)
			if n := listed[kind.Name][word]; n != 1 {
				t.Errorf("%s %q is in the list %d times; add it to Stages or Reasons", kind.Name, word, n)
			}
			return true
		})
	}
	if n := len(listed["Stage"]) + len(listed["Reason"]); n != declared {
		t.Errorf("%d listed, %d declared", n, declared)
	}
	if Stage("x").Known() || Reason("x").Known() || Reason("").Known() || !StageSolo.Known() || !Other.Known() {
		t.Error("Known takes something for what it is not")
	}
}
