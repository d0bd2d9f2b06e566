package config

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// Key is a key of the configuration, as docs/configuration.md shows it. The
// loader reads by the same table, so neither can say what the other does not do.
type Key struct {
	Name    string // with what it is below: probe.tls.cert_file
	Form    string // what to write
	Default string // what holds without it; empty: nothing does
	Bounds  string // empty: the form says it all
	About   string
}

// Keys returns all keys, in the order of the reference.
func Keys() []Key {
	opts := probe.DefaultOptions()
	r := probeReader{opts: &opts}
	var all []Key
	for _, section := range []struct {
		name string
		keys []key
	}{{"rails", parser{}.railKeys(&rail.Options{})}, {"expect", parser{}.expectKeys(&Expect{})}, {"probe", r.keys()}, {"probe.tls", r.tlsKeys()}} {
		for _, k := range section.keys {
			k.Name = section.name + "." + k.Name
			all = append(all, k.Key)
		}
	}
	return all
}

// key is a key with what the loader does with its value. Its name is without
// what it is below.
type key struct {
	Key
	read  func(*yaml.Node) error
	check func() *Problem // of the value, wherever it comes from; nil: read refuses all there is to refuse
}

// figure is a number of some unit: how it is read, printed and bounded.
type figure[T cmp.Ordered] struct {
	form, must string // for the reference, for a message
	parse      func(string) (T, error)
	format     func(T) string
	own        bool // parse says by itself what is wrong
}

var (
	durations = figure[time.Duration]{form: "duration", must: "a duration, such as 60s or 1m30s", parse: time.ParseDuration, format: formatDuration}
	numbers   = figure[int]{form: "number", must: "a whole number", parse: strconv.Atoi, format: strconv.Itoa}
	sizes     = figure[int64]{form: "size", must: sizeOrBudget, parse: ParseSize, format: formatSize, own: true}
	budgets   = figure[int64]{form: "size/h", must: sizeOrBudget, parse: parseBudget, format: formatBudget, own: true}
	ratios    = figure[float64]{form: "ratio", must: "a ratio, more than 0 and at most 1, such as 0.2",
		parse: func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, format: func(v float64) string { return fmt.Sprintf("%g", v) }}
)

const sizeOrBudget = "a size, such as 64MiB (for budget: 8GiB/h)"

// bounds of a figure, in words and as a test. The zero of text is "from … to …".
type bounds[T cmp.Ordered] struct {
	text string
	ok   func(T) bool
}

// from is at least, and at most.
func from[T cmp.Ordered](f figure[T], least, most T) bounds[T] {
	return bounds[T]{"from " + f.format(least) + " to " + f.format(most), func(v T) bool { return v >= least && v <= most }}
}

// of makes a key of a figure that goes to v, whose value now is the default.
func of[T cmp.Ordered](r probeReader, name string, f figure[T], v *T, b bounds[T], about string) key {
	k := key{Key: Key{Name: name, Form: f.form, Default: f.format(*v), Bounds: b.text, About: about}}
	k.read = func(n *yaml.Node) error {
		s, err := r.word(n, name, f.must)
		if err != nil {
			return err
		}
		switch *v, err = f.parse(s); {
		case err != nil && f.own:
			return r.errorf(n, "probe.%s: %w", name, err)
		case err != nil:
			return r.errorf(n, "probe.%s must be %s, not %q", name, f.must, s)
		}
		return nil
	}
	k.check = func() *Problem { return when(!b.ok(*v), name, "must be %s, not %s", b.text, f.format(*v)) }
	return k
}

// written makes a key whose value read understands and refuses by itself.
func written(name, form, def, bounds, about string, read func(*yaml.Node) error) key {
	return key{Key: Key{Name: name, Form: form, Default: def, Bounds: bounds, About: about}, read: read}
}
