package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxSize bounds the configuration file, in bytes, readTime how long a pipe in its place may be silent.
const (
	maxSize  = 1 << 20
	readTime = 5 * time.Second
)

// Load reads the file at path; an empty path is an empty configuration. Errors are one line: file, line number where
// there is one, what is wrong, what would be right.
func Load(path string) (*Config, error) { return new(Loader).Load(path) }

// Load is the function of this name, for a process that loads more than once.
func (l *Loader) Load(path string) (*Config, error) {
	if path == "" {
		return &Config{}, nil
	}
	data, err := read(path)
	if errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("read configuration: %w; --config.file needs a file, such as railscope.yml in it", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w; --config.file needs a readable file, "+
			"and without it the defaults apply", err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("%s: larger than %d bytes: not a railscope configuration", path, maxSize)
	}
	return l.parse(path, data)
}

// read reads a file, or a pipe such as a shell's <(command). O_NONBLOCK makes the open of a pipe without a writer
// return at once, and the deadline ends the read of a silent one.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTime)) // regular files have none
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && len(data) == 0 {
		return nil, fmt.Errorf("%s is a pipe without a writer", path)
	}
	return data, nil
}

// Parse is [Load] of data that was read from the file name.
func Parse(name string, data []byte) (*Config, error) { return new(Loader).parse(name, data) }

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
	if err := d.checkBounds(); err != nil {
		return nil, err
	}
	if err := d.checkRails(&c.Rails); err != nil {
		return nil, err
	}
	if d.nodes["probe"] == nil {
		c.Probe = nil
		return c, nil
	}
	if c.Probe == nil { // probe without a value
		c.Probe = DefaultProbe()
	}
	if err := d.checkProbe(c.Probe, l); err != nil {
		return nil, err
	}
	return c, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError gives an error of the YAML parser the form of the others. Its line is in its text only.
func syntaxError(file string, err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	m := yamlLine.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	line := ""
	if m[1] != "" {
		line = m[1] + ":"
	}
	return fmt.Errorf("%s:%s invalid YAML: %s", file, line, text[len(m[0]):])
}
