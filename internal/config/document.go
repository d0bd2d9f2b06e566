package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is the file as written, with the position of each value. It checks each value before it is decoded: the
// messages of the decoder name neither the key nor a valid value.
type document struct {
	file   string
	table  []Key
	nodes  map[string]*yaml.Node // keyed by path, such as probe.interval
	extras []string              // probe.extras
}

func (d *document) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{d.file, n.Line}, args...)...)
}

func (d *document) wrong(n *yaml.Node, path string) error {
	return d.errorf(n, "%s must be %s, not %s", path, wanted(d.table, path), nodeText(n))
}

// decode checks the value of a key, and sets its field.
func (d *document) decode(n *yaml.Node, k Key) error {
	if err := d.check(n, reflect.TypeOf(k.into).Elem(), k.Name); err != nil {
		return err
	}
	if err := n.Decode(k.into); err != nil {
		return syntaxError(d.file, err)
	}
	return nil
}

// check checks that the value at path fits the type that it will be decoded into; nil: keys of the table.
func (d *document) check(n *yaml.Node, t reflect.Type, path string) error {
	n = resolve(n)
	d.nodes[path] = n
	if t == nil {
		if at := slices.IndexFunc(d.table, func(k Key) bool { return k.Name == path && k.into != nil }); at >= 0 {
			return d.decode(n, d.table[at])
		}
		return d.checkMapping(n, t, path)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	value := reflect.New(t).Interface()
	_, text := value.(encoding.TextUnmarshaler)
	switch kind := t.Kind(); {
	case !text && (kind == reflect.Struct || kind == reflect.Map):
		return d.checkMapping(n, t, path)
	case kind == reflect.Slice:
		if !isNull(n) && n.Kind != yaml.SequenceNode {
			return d.wrong(n, path)
		}
		for _, item := range n.Content {
			if err := d.check(item, t.Elem(), itemOf+path); err != nil {
				return err
			}
		}
		return nil
	case !hasText(n) || kind == reflect.Bool && n.Tag != "!!bool":
		return d.wrong(n, path)
	}
	err := n.Decode(value)
	if re, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("%w: %s in %q", d.wrong(n, path), re.Code, re.Expr)
	}
	if err != nil {
		return d.wrong(n, path)
	}
	return nil
}

// checkMapping checks keys and their values. A struct has the keys of its fields; a map accepts any; nil has those of
// the table.
func (d *document) checkMapping(n *yaml.Node, t reflect.Type, path string) error {
	name := cmp.Or(path, "the configuration")
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return d.errorf(n, "%s must be %s, not %s", name, wanted(d.table, path), nodeText(n))
	}
	lines, known := map[string]int{}, d.known(t, path)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		if line, found := lines[key.Value]; found {
			return d.errorf(key, "duplicate key %q in %s; the first is in line %d", key.Value, name, line)
		}
		lines[key.Value] = key.Line
		of, found := known[key.Value]
		if why := Replaced()[key.Value]; path == "probe" && why != "" {
			return d.errorf(key, "probe.%s %s", key.Value, why)
		}
		if known == nil {
			of = t.Elem()
		} else if !found {
			words := slices.Sorted(maps.Keys(known))
			return d.errorf(key, "unknown key %q in %s%s", key.Value, name, Suggest(key.Value, words))
		}
		if err := d.check(value, of, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) checkBounds() error {
	for _, k := range d.table {
		n := d.nodes[k.Name]
		if n == nil || k.invalid == nil {
			continue
		}
		if value := k.invalid(); value != "" {
			return d.errorf(n, "%s must be %s, not %s", k.Name, k.want, value)
		}
	}
	return nil
}

// known returns the keys of a struct with their types, or those of the table below path; nil: any.
func (d *document) known(t reflect.Type, path string) map[string]reflect.Type {
	list := map[string]reflect.Type{}
	switch {
	case t == nil:
		for _, k := range d.table {
			if below, ok := strings.CutPrefix("."+k.Name, strings.TrimSuffix("."+path, ".")+"."); ok {
				key, _, _ := strings.Cut(below, ".")
				list[key] = nil
			}
		}
	case t.Kind() == reflect.Map:
		return nil
	default:
		for field := range t.Fields() {
			if key := field.Tag.Get("yaml"); key != "-" {
				list[key] = field.Type
			}
		}
	}
	return list
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func hasText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag != "!!null" && n.Tag != "!!binary" && n.Value != ""
}

func nodeText(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "keys with values"
	}
	return fmt.Sprintf("%q", n.Value)
}

// Suggest returns the end of a message about an unknown word: the nearest known word, or all of them.
func Suggest(word string, known []string) string {
	if best := Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; known keys: " + strings.Join(known, ", ")
}

// Nearest returns the known word that was probably meant: at most 1/3 of its letters differ; empty: none.
func Nearest(word string, known []string) string {
	best, least := "", (len(word)+1)/3+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
