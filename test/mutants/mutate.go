package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	judge  judge
	file   string // relative to the root of the module
	line   int
	change string // "a < b -> a <= b" without the operands
	source []byte // the whole file with the change
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.change) }

// swaps are the operators that replace one another.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GTR}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LSS}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
}

// sources returns the files that are changed, below the root of the module.
func (j judge) sources(root string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(root, j.dir, "*.go"))
	files := slices.DeleteFunc(all, func(file string) bool {
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		return strings.HasSuffix(name, "_test") || len(j.files) > 0 && !slices.Contains(j.files, name)
	})
	if err == nil && len(files) < max(len(j.files), 1) {
		err = fmt.Errorf("%s has only %q, not all of %q", j.dir, files, j.files)
	}
	return files, err
}

// mutants returns all changes of the package.
func (j judge) mutants() ([]mutant, error) {
	files, err := j.sources("")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := mutate(file, src)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			m.judge = j
			all = append(all, m)
		}
	}
	return all, nil
}

// mutate returns the changes of a file: its comparisons, its numbers, and the constant results of its functions.
func mutate(file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []mutant
	add := func(at token.Pos, old, replacement string) {
		offset := fset.Position(at).Offset
		all = append(all, mutant{
			file: file, line: fset.Position(at).Line, change: old + " -> " + replacement,
			source: slices.Concat(src[:offset], []byte(replacement), src[offset+len(old):]),
		})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			for _, op := range swaps[n.Op] {
				add(n.OpPos, n.Op.String(), op.String())
			}
		case *ast.BasicLit:
			if replacement, ok := otherNumber(n); ok {
				add(n.Pos(), n.Value, replacement)
			}
		case *ast.ReturnStmt:
			for _, result := range n.Results {
				if id, ok := result.(*ast.Ident); ok && (id.Name == "true" || id.Name == "false") {
					add(id.Pos(), id.Name, strconv.FormatBool(id.Name == "false"))
				}
			}
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b mutant) int { return a.line - b.line })
	return slices.CompactFunc(all, func(a, b mutant) bool { return bytes.Equal(a.source, b.source) }), nil
}

// otherNumber is a number near to that of a literal, in which a rule that depends on it would show.
func otherNumber(l *ast.BasicLit) (string, bool) {
	switch l.Kind {
	case token.INT:
		if n, err := strconv.ParseInt(l.Value, 0, 64); err == nil {
			return strconv.FormatInt(n+1, 10), true
		}
	case token.FLOAT:
		if x, err := strconv.ParseFloat(l.Value, 64); err == nil {
			return strconv.FormatFloat(x*0.9, 'g', -1, 64), x != 0
		}
	}
	return "", false
}
