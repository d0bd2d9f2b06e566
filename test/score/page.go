package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed intro.md
var intro string

//go:embed others.md
var others string

//go:embed kernel.md
var kernels string

// render writes the page.
func render(sections []section, lab []labRow) string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## In total\n\n| Planted in | named | healthy, but accused |\n|---|---|---|\n")
	for _, s := range sections {
		sum := s.sum()
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", s.title, anchor(s.title), part(sum.named, sum.planted),
			part(sum.accused, sum.healthy))
	}
	healthy := 0
	for _, r := range lab {
		if r.took == nothing {
			healthy++
		}
	}
	fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n\n%s", kernelTitle, anchor(kernelTitle),
		part(len(lab)-healthy, len(lab)-healthy), part(0, healthy), others)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.title, s.about)
		if !s.healthy && (s.each || len(s.rows) <= maxKinds) {
			s.table(&b)
		}
	}
	writeLab(&b, lab)
	return b.String()
}

// maxKinds is the number of rows that a source without each shows.
const maxKinds = 16

const kernelTitle = "Faults under a real kernel"

// anchor returns the anchor of a title.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(title), "`", ""), " ", "-")
}

func part(n, of int) string {
	if of == 0 {
		return ""
	}
	return thousands(n) + " of " + thousands(of)
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func (s section) sum() (all row) {
	for _, r := range s.rows {
		all.named, all.planted = all.named+r.named, all.planted+r.planted
		all.accused, all.healthy = all.accused+r.accused, all.healthy+r.healthy
	}
	return all
}

// table writes the rows of a section.
func (s section) table(b *strings.Builder) {
	timed := slices.ContainsFunc(s.rows, func(r row) bool { return r.took != "" })
	switch {
	case len(s.rows) == 1: // it stands in the table of all
	case s.matrix:
		b.WriteString("\n| Fault | found |\n|---|---|\n")
		for _, r := range s.rows {
			fmt.Fprintf(b, "| %s | %s |\n", r.what, cmp.Or(r.as, "nothing"))
		}
	case timed:
		b.WriteString("\n| Fault | named | healthy, but accused | virtual time |\n|---|---|---|---|\n")
		for _, r := range s.rows {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.what, part(r.named, r.planted),
				part(r.accused, r.healthy), r.took)
		}
	default:
		b.WriteString("\n| Fault | named | healthy, but accused |\n|---|---|---|\n")
		for _, r := range s.rows {
			fmt.Fprintf(b, "| %s | %s | %s |\n", r.what, part(r.named, r.planted), part(r.accused, r.healthy))
		}
	}
}

// writeLab writes the table of faults under real kernels, with a column for each kernel.
func writeLab(b *strings.Builder, lab []labRow) {
	fmt.Fprintf(b, "\n## %s\n\n", kernelTitle)
	b.WriteString(kernels)
	var versions []string
	type fault struct{ test, name string }
	took := map[fault]map[string]string{}
	var list []fault
	for _, r := range lab {
		if !slices.Contains(versions, r.kernel) {
			versions = append(versions, r.kernel)
		}
		f := fault{r.test, r.fault}
		if took[f] == nil {
			took[f] = map[string]string{}
			list = append(list, f)
		}
		took[f][r.kernel] = cmp.Or(r.took, "named")
	}
	slices.SortFunc(list, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.test, b.test), cmp.Compare(a.name, b.name))
	})
	fmt.Fprintf(b, "\n| Test | Fault | Linux %s |\n|---|---|%s\n", strings.Join(versions, " | Linux "),
		strings.Repeat("---|", len(versions)))
	for _, f := range list {
		fmt.Fprintf(b, "| `%s` | %s |", f.test, f.name)
		for _, k := range versions {
			fmt.Fprintf(b, " %s |", took[f][k])
		}
		b.WriteString("\n")
	}
}
