package main

import (
	"slices"
	"testing"
)

// TestMutate: each kind of change is found once, at its place, and what is no rule stays.
func TestMutate(t *testing.T) {
	src := `package p

import "fmt"

const low = 0.9

func f(a, b int) bool {
	fmt.Println("1 < 2", 'x')
	if a < b && b != 3 {
		return true
	}
	return a+b >= 0x10
}
`
	all, err := mutate("p.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.String())
	}
	want := []string{
		"p.go:5: 0.9 -> 0.81",
		"p.go:9: && -> ||", "p.go:9: < -> <=", "p.go:9: < -> >", "p.go:9: != -> ==", "p.go:9: 3 -> 4",
		"p.go:10: true -> false",
		"p.go:12: >= -> >", "p.go:12: >= -> <", "p.go:12: 0x10 -> 17",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants\n%q\nwant\n%q", got, want)
	}
	if at := slices.Index(got, "p.go:9: < -> <="); at >= 0 {
		if want := "\tif a <= b && b != 3 {\n"; !slices.Contains(lines(all[at].source), want) {
			t.Errorf("the mutant has no line %q:\n%s", want, all[at].source)
		}
	}
}

// TestJudges: the files that the list names exist.
func TestJudges(t *testing.T) {
	for _, j := range judges {
		if _, err := j.sources("../.."); err != nil {
			t.Error(err)
		}
	}
}

func lines(b []byte) (all []string) {
	for len(b) > 0 {
		n := slices.Index(b, '\n') + 1
		all, b = append(all, string(b[:n])), b[n:]
	}
	return all
}
