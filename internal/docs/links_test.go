package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// pages returns all Markdown files of the repository by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && file != root
		if d.IsDir() && (hidden || slices.Contains([]string{"testdata", "node_modules", "dist"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(file) != ".md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil || len(all) < 20 {
		t.Fatal(err, len(all))
	}
	return all
}

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline = regexp.MustCompile("`[^`\n]*`")
	link   = regexp.MustCompile(`\]\(<?([^()\s>]+)>?(?: "[^"]*")?\)`)
	html   = regexp.MustCompile(`(?:href|src|srcset)="([^"]+)"`)
	remote = regexp.MustCompile(`^(?:[a-z]+:|//)`)
)

// prose returns a page without its code, which has no links and no words.
func prose(page string) string {
	return inline.ReplaceAllString(fenced.ReplaceAllString(page, ""), "``")
}

// links returns the targets of a page's links within the repository.
func links(page string) (targets []string) {
	text := prose(page)
	for _, m := range slices.Concat(link.FindAllStringSubmatch(text, -1), html.FindAllStringSubmatch(text, -1)) {
		if !remote.MatchString(m[1]) {
			targets = append(targets, m[1])
		}
	}
	return targets
}

var heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)

// anchors returns GitHub's anchors of a page's headings: lower case, without punctuation, with hyphens for blanks,
// and a number for repeated headings.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		title := link.ReplaceAllString(m[1], "]")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		name := slug
		for i := 1; all[name]; i++ {
			name = fmt.Sprint(slug, "-", i)
		}
		all[name] = true
	}
	return all
}

// broken returns the broken links of all pages. there reports whether a file or directory of the repository exists.
func broken(all map[string]string, there func(path string) bool) (wrong []string) {
	for name, page := range all {
		for _, target := range links(page) {
			file, anchor, _ := strings.Cut(target, "#")
			at := name
			if file != "" {
				at = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			other, markdown := all[at]
			switch {
			case strings.HasPrefix(at, ".."), strings.HasPrefix(file, "/"):
				wrong = append(wrong, fmt.Sprintf("%s: %s leads out of the repository", name, target))
			case !there(at):
				wrong = append(wrong, fmt.Sprintf("%s: %s is not there", name, target))
			case anchor != "" && markdown && !anchors(other)[anchor]:
				wrong = append(wrong, fmt.Sprintf("%s: %s has no heading #%s", name, at, anchor))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// TestLinks follows every link within the repository.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, w := range broken(all, func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}) {
		t.Error(w)
	}
}

// TestBrokenLinksAreFound: each kind of broken link is found.
func TestBrokenLinksAreFound(t *testing.T) {
	all := map[string]string{
		"README.md": "# A\n\n[ok](docs/b.md) [ok](docs/b.md#two-words--more) [ok](#a) ![ok](docs/x.png) " +
			"[web](https://example.org/nothing)\n`[code](nowhere)`\n\n```\n[code](nowhere)\n# Not a heading\n```\n" +
			"[gone](docs/c.md) [no such](docs/b.md#three) [here](#not-a-heading) [out](../x.md) [abs](/docs/b.md)\n" +
			"<img src=\"docs/y.png\">\n",
		"docs/b.md": "# B\n\n## Two `words`, & more\n\n### Twice\n\n### Twice\n\n[up](../README.md#a) " +
			"[second](#twice-1) [third](#twice-2)\n",
	}
	got := broken(all, func(path string) bool { return all[path] != "" || path == "docs/x.png" })
	want := []string{
		"README.md: ../x.md leads out", "README.md: /docs/b.md leads out",
		"README.md: README.md has no heading #not-a-heading",
		"README.md: docs/b.md has no heading #three", "README.md: docs/c.md is not there",
		"README.md: docs/y.png is not there", "docs/b.md: docs/b.md has no heading #twice-2",
	}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
			t.Errorf("not found: %s, only %q", w, got)
		}
	}
}

// TestIndex: docs/README.md links to every page beside it.
func TestIndex(t *testing.T) {
	all := pages(t)
	index := links(all["docs/README.md"])
	for name := range all {
		below, ok := strings.CutPrefix(name, "docs/")
		if !ok || strings.Contains(below, "/") || below == "README.md" {
			continue
		}
		if !slices.ContainsFunc(index, func(target string) bool {
			file, _, _ := strings.Cut(target, "#")
			return file == below
		}) {
			t.Errorf("docs/README.md does not lead to %s", below)
		}
	}
}

// TestWords enforces one spelling of product names, and plain words in prose.
func TestWords(t *testing.T) {
	for name, page := range pages(t) {
		for i, line := range strings.Split(prose(page), "\n") {
			for _, w := range []struct{ wrong, right string }{
				{`\b(?:RoCe|ROCE|Roce|RoCEv\d)\b`, "RoCE, RoCE v2"}, {`\b(?:Infiniband|InfiniBAND)\b`, "InfiniBand"},
				{`(?i)\bgood[- ]put\b`, "goodput"}, {`\b(?:GPUdirect|GpuDirect|GPU Direct)\b`, "GPUDirect"},
				{`\b(?:DGX spark|DGX-Spark)\b`, "DGX Spark"},
				{`\bRailscope\b`, "railscope, in lower case"},
				{`—`, "a colon, a comma or a full stop instead of a dash"},
			} {
				if m := regexp.MustCompile(w.wrong).FindString(line); m != "" && !strings.Contains(line,
					"GPU Direct RDMA Enabled") {
					t.Errorf("%s:%d: %q; write %s", name, i+1, m, w.right)
				}
			}
		}
	}
}

// TestTargets: make targets that pages name exist, and CONTRIBUTING.md names all targets.
func TestTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	all := pages(t)
	use := regexp.MustCompile("(?m)(?:^|`|&& |\\$ )make ([a-z0-9-]+)((?: [a-z0-9-]+)*)(?:`|$| +#| +[A-Z]+=)")
	for name, page := range all {
		if name == "CHANGELOG.md" {
			continue
		}
		for _, m := range use.FindAllStringSubmatch(page, -1) {
			for target := range strings.FieldsSeq(m[1] + m[2]) {
				if !targets[target] {
					t.Errorf("%s: there is no make %s", name, target)
				}
			}
		}
	}
	documented := regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	for _, m := range documented.FindAllStringSubmatch(string(makefile), -1) {
		if !strings.Contains(all["CONTRIBUTING.md"], "| `make "+m[1]+"` |") {
			t.Errorf("CONTRIBUTING.md does not say what make %s does", m[1])
		}
	}
}

// TestTables: each row has as many cells as the head of its table; further cells would not be shown.
func TestTables(t *testing.T) {
	for name, page := range pages(t) {
		width := 0
		for i, line := range strings.Split(fenced.ReplaceAllStringFunc(page, func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		}), "\n") {
			if !strings.HasPrefix(line, "|") {
				width = 0
				continue
			}
			cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			if width == 0 {
				width = cells
			}
			if cells != width || !strings.HasSuffix(line, "|") {
				t.Errorf("%s:%d: a row of %d cells in a table of %d", name, i+1, cells-1, width-1)
			}
		}
	}
}

// TestCounts: pages give the right number of alerts.
func TestCounts(t *testing.T) {
	runbooks, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := pages(t)
	delete(all, "CHANGELOG.md") // it describes earlier versions
	for name, page := range all {
		for _, m := range regexp.MustCompile(`\b(\d+) alerts\b`).FindAllStringSubmatch(page, -1) {
			if m[1] != fmt.Sprint(len(runbooks)) {
				t.Errorf("%s: %s, but there are %d", name, m[0], len(runbooks))
			}
		}
	}
}
