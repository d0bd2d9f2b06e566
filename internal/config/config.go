// Package config reads the configuration file and refuses what it does not
// understand, with file, line and what would be right.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// maxSize bounds the configuration file, in bytes, readTime how long a pipe in its
// place may be silent.
const (
	maxSize  = 1 << 20
	readTime = 5 * time.Second
)

// Config is the whole configuration. The zero value is what holds without a
// file.
type Config struct {
	Empty  bool // the file has nothing but comments, as one that is being written; {} says that it is meant
	Rails  rail.Options
	Expect Expect
	Probe  *probe.Options // nil: neither ask peers nor answer them
}

// Load reads the file at path; an empty path is an empty configuration. Errors
// are one line: file, line number where there is one, what is wrong, what would
// be right.
func Load(path string) (*Config, error) { return new(Loader).Load(path) }

// Load is the function of this name, for whoever loads more than once.
func (l *Loader) Load(path string) (*Config, error) {
	if path == "" {
		return &Config{}, nil
	}
	data, err := read(path)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("read configuration: %w; --config.file names a file, such as railscope.yml in it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w; --config.file names a file that can be read, and without it the defaults hold", err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s: more than %d bytes is no configuration of ours", path, maxSize)
	}
	return l.parse(path, data)
}

// read reads a file, or a pipe, as a shell's <(command) is. It waits for no writer
// to open one, and for no writer that is silent: O_NONBLOCK makes the first end at
// once, and the second end in time.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTime)) // a file has none, and needs none
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && len(data) == 0 {
		return nil, fmt.Errorf("%s is a pipe to which nobody writes", path)
	}
	return data, nil
}

// Parse is Load of data that was read from name.
func Parse(name string, data []byte) (*Config, error) { return new(Loader).parse(name, data) }

func (l *Loader) parse(name string, data []byte) (*Config, error) {
	p := parser{file: name, files: l}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return &Config{Empty: true}, nil
	case err != nil:
		return nil, p.syntax(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document; one is read", name)
	}
	c := &Config{Empty: len(doc.Content) == 0 || resolve(doc.Content[0]).Tag == "!!null"}
	err := p.mapping(doc.Content[0], "the configuration", []key{
		{Key: Key{Name: "rails"}, read: func(n *yaml.Node) error { return p.rails(n, &c.Rails) }},
		{Key: Key{Name: "expect"}, read: func(n *yaml.Node) error { return p.mapping(n, "expect", p.expectKeys(&c.Expect)) }},
		{Key: Key{Name: "probe"}, read: func(n *yaml.Node) (err error) { c.Probe, err = p.probe(n); return err }},
	})
	if err != nil {
		return nil, err
	}
	if c.Probe != nil {
		c.Probe.ExpectedRate = c.Expect.Rate
	}
	return c, nil
}

type parser struct {
	file  string
	files *Loader
}

func (p parser) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{p.file, n.Line}, args...)...)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax gives an error of the YAML parser the form of ours.
func (p parser) syntax(err error) error {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s: %w", p.file, err)
	}
	line := ""
	if m[1] != "" {
		line = m[1] + ":"
	}
	return fmt.Errorf("%s:%s not YAML: %s", p.file, line, text[len(m[0]):])
}

// mapping walks a mapping and lets each key read its value. An unknown key is
// refused with the nearest known one.
func (p parser) mapping(n *yaml.Node, what string, keys []key) error {
	n = resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return p.errorf(n, "%s must be keys with values, not %s", what, kindName(n))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if line, twice := seen[name.Value]; twice {
			return p.errorf(name, "key %q is there already, in line %d", name.Value, line)
		}
		seen[name.Value] = name.Line
		at := slices.IndexFunc(keys, func(k key) bool { return k.Name == name.Value })
		if at < 0 {
			return p.errorf(name, "unknown key %q in %s%s", name.Value, what, Suggest(name.Value, namesOf(keys)))
		}
		if err := keys[at].read(resolve(value)); err != nil {
			return err
		}
	}
	return nil
}

func (p parser) rails(n *yaml.Node, opts *rail.Options) error {
	keys := p.railKeys(opts)
	var names *yaml.Node
	keys[1].read = func(n *yaml.Node) error { names = n; return nil } // after include, wherever it is written
	if err := p.mapping(n, "rails", keys); err != nil || names == nil {
		return err
	}
	return p.names(names, opts)
}

// railKeys are the keys below rails.
func (p parser) railKeys(opts *rail.Options) []key {
	return []key{
		written("include", "regular expression", "", "RE2, not empty",
			"Devices whose ports are rails; it need not match the whole name, so write `^` where you mean the beginning. Without it every port that is not a virtual function is one.",
			func(n *yaml.Node) (err error) { opts.Include, err = p.include(n); return err }),
		written("names", "name: device/port or PCI address, …", "the number that is remembered, else `0`, `1`, … in natural order of devices and ports", "letters, digits, `_` `.` `-`, 32 at most; each port and each name once",
			"What rails are called in metrics, on both nodes of a probe alike if rails are to be paired by name: `mlx5_0/1`, or `0000:18:00.0` for the first port of the function there, `0000:18:00.0/2` for the second. Ports without a name keep their number. A port that is not there is reported as missing. See [rails.md](rails.md).",
			func(n *yaml.Node) error { return p.names(n, opts) }),
	}
}

func (p parser) include(n *yaml.Node) (*regexp.Regexp, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return nil, p.errorf(n, "rails.include must be a regular expression on device names, such as ^mlx5_")
	}
	re, err := regexp.Compile(n.Value)
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return nil, p.errorf(n, "rails.include is not a regular expression: %s in %q", bad.Code, bad.Expr)
	}
	return re, err
}

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
	validPort = regexp.MustCompile(`^([^/:\s]+)/([1-9][0-9]{0,2})$`)
	validPCI  = regexp.MustCompile(`^([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:/([1-9][0-9]{0,2}))?$`)
)

// portOf returns the key of what names a port: device/port, or a PCI address with
// or without port.
func portOf(value string) (key, device string, ok bool) {
	if m := validPCI.FindStringSubmatch(value); m != nil {
		port, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		return rail.Key(strings.ToLower(m[1]), port), "", true
	}
	m := validPort.FindStringSubmatch(value)
	if m == nil {
		return "", "", false
	}
	port, _ := strconv.Atoi(m[2])
	return rail.Key(m[1], port), m[1], true
}

// names reads the names of rails, after include is known.
func (p parser) names(n *yaml.Node, opts *rail.Options) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return p.errorf(n, "rails.names must be name: device/port or PCI address, such as {rail0: mlx5_0/1}, not %s", kindName(n))
	}
	opts.Names = map[string]string{}
	taken := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		key, device, ok := portOf(value.Value)
		switch line, twice := taken[name.Value]; {
		case !validName.MatchString(name.Value):
			return p.errorf(name, "%q cannot name a rail: use letters, digits, _ . -, 32 at most", name.Value)
		case twice:
			return p.errorf(name, "the name %q is given already, in line %d", name.Value, line)
		case value.Kind != yaml.ScalarNode || !ok:
			return p.errorf(value, "rails.names.%s must be device/port or PCI address, such as mlx5_0/1 or 0000:18:00.0, not %s", name.Value, kindName(value))
		case opts.Names[key] != "":
			return p.errorf(value, "%s has a name already: %s", value.Value, opts.Names[key])
		case device != "" && opts.Include != nil && !opts.Include.MatchString(device):
			return p.errorf(value, "rails.names.%s is %s, which rails.include %q leaves out", name.Value, value.Value, opts.Include)
		}
		taken[name.Value] = name.Line
		opts.Names[key] = name.Value
	}
	return nil
}

// resolve follows an alias to what it stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "keys with values"
	}
	return fmt.Sprintf("%q", n.Value)
}
