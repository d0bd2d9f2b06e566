package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Load reads the file at path; an empty path is an empty configuration. Errors are one line: file, line number where
// there is one, what is wrong, and what would be valid.
func Load(path string) (*Config, error) { return new(Loader).Load(path) }

// Load is the function of this name, for a process that loads more than once.
func (l *Loader) Load(path string) (*Config, error) {
	if path == "" {
		return &Config{}, nil
	}
	data, err := l.read(path, loadTimeout, readAny)
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("read configuration: %w; --config.file needs a file, such as railscope.yml in it", err)
	case err != nil:
		return nil, fmt.Errorf("read configuration: %w; --config.file needs a readable file, "+
			"and without it the defaults apply", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s: larger than %d bytes: not a railscope configuration", path, maxFile)
	}
	return l.parse(path, data)
}

// parse is [Load] of data that was read from the file name.
func (l *Loader) parse(name string, data []byte) (*Config, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return &Config{Empty: true}, nil
	case err != nil:
		return nil, syntaxError(name, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document; write one", name)
	}
	c := &Config{Empty: isNull(resolve(root.Content[0])), Probe: DefaultProbe()}
	d := &document{file: name, table: keys(c), nodes: map[string]*yaml.Node{}}
	if err := d.check(root.Content[0], reflect.TypeOf(c), ""); err != nil {
		return nil, err
	}
	dec = yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil {
		return nil, syntaxError(name, err)
	}
	if err := cmp.Or(d.checkBounds(), d.checkRails(&c.Rails)); err != nil {
		return nil, err
	}
	if d.nodes["probe"] == nil {
		c.Probe = nil
		return c, nil
	}
	if c.Probe == nil { // the key is there without a value
		c.Probe = DefaultProbe()
	}
	if err := d.checkProbe(c.Probe, l); err != nil {
		return nil, err
	}
	return c, nil
}

// syntaxError rewrites an error of the YAML parser, which has the line in its text only, in the form of the others.
func syntaxError(file string, err error) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	if at, found := strings.CutPrefix(text, "line "); found {
		line, problem, _ := strings.Cut(at, ": ")
		return fmt.Errorf("%s:%s: invalid YAML: %s", file, line, problem)
	}
	return fmt.Errorf("%s: invalid YAML: %s", file, text)
}
