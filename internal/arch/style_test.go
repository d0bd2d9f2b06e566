package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fragment begins a comment that needs the line above it to be understood.
var fragment = regexp.MustCompile(`^(of|that|to|the same|likewise)\b`)

// cComment finds the comments of C, each with its marks.
var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// TestStyle: a comment is a sentence or a noun phrase with its own noun, and no state changes in the header of an if.
func TestStyle(t *testing.T) {
	err := walk(filepath.Join("..", ".."), func(file string, src []byte) error {
		found, err := checkStyle(file, src)
		for _, f := range found {
			t.Error(f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkStyle returns what is wrong with the comments and the ifs of a file of Go or C.
func checkStyle(file string, src []byte) ([]string, error) {
	var found []string
	if path.Ext(file) != ".go" {
		for _, at := range cComment.FindAllIndex(src, -1) {
			if c := string(src[at[0]:at[1]]); isFragment(c) {
				found = append(found, fmt.Sprintf("%s:%d: comment is a fragment, name what it is about: %s", file,
					1+strings.Count(string(src[:at[0]]), "\n"), c))
			}
		}
		return found, nil
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, group := range tree.Comments {
		if c := group.List[0]; isFragment(c.Text) {
			found = append(found, fmt.Sprintf("%s: comment is a fragment, name what it is about: %s",
				fset.Position(c.Pos()), c.Text))
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.IfStmt); ok && changesState(s.Init) {
			found = append(found, fmt.Sprintf("%s: state changes in the header of an if: put it on a line of its own",
				fset.Position(s.Pos())))
		}
		return true
	})
	return found, nil
}

func isFragment(comment string) bool {
	comment = strings.TrimLeft(comment, "/* \t\n")
	return fragment.MatchString(comment) && !strings.HasPrefix(comment, "of returns ") // a function of this name
}

// changesState reports whether the header of an if does more than declare variables, or than keep an error.
func changesState(header ast.Stmt) bool {
	a, ok := header.(*ast.AssignStmt)
	if !ok {
		return header != nil
	}
	if a.Tok == token.DEFINE {
		return false
	}
	name, ok := a.Lhs[0].(*ast.Ident)
	return !ok || len(a.Lhs) > 1 || a.Tok != token.ASSIGN || name.Name != "err"
}

// TestCheckStyle: each rule finds what it is for, and leaves what is right.
func TestCheckStyle(t *testing.T) {
	goSource := `package p

// of returns nothing, of course.
func of() (err error) {
	a := 1 // of a
	b := 2 // total of both
	if a++; a > b { // the same, for b
	}
	if a = b; a > b {
	}
	if f(); a > b {
	}
	if c := a; c > b {
	}
	if err = f(); err != nil {
	}
	// that is one,
	// of two lines
	// offset of a
	return nil
}
`
	cSource := "int a; /* of it */\n/* Sum of a.\n * of b */ int b; // to be sure\n"
	for _, c := range []struct {
		file, source string
		want         []string
	}{
		{"a.go", goSource, []string{"a.go:5:9", "a.go:7:18", "a.go:17:2", "a.go:7:2", "a.go:9:2", "a.go:11:2"}},
		{"a.c", cSource, []string{"a.c:1", "a.c:3"}},
	} {
		got, err := checkStyle(c.file, []byte(c.source))
		if err != nil {
			t.Fatal(err)
		}
		for n := range got {
			got[n], _, _ = strings.Cut(got[n], ": ")
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found at %q, want %q", c.file, got, c.want)
		}
	}
}
