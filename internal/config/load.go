package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/probe/options"
)

// Load reads the file at path; an empty path is an empty configuration. Errors are one line: file, line number if
// there is one, what is wrong, and what would be valid.
func Load(path string) (*Config, error) { return new(Loader).Load(path) }

// Load is like the function Load, for a process that loads more than once.
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
	c, err := l.parse(path, data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	c.Digest = hex.EncodeToString(sum[:])[:12]
	return c, nil
}

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
	c := &Config{Empty: isNull(resolve(root.Content[0])), Probe: new(options.DefaultOptions())}
	d := &document{file: name, nodes: map[string]*yaml.Node{}}
	d.table = keys(c, &d.extras)
	if err := d.check(root.Content[0], nil, ""); err != nil {
		return nil, err
	}
	if err := cmp.Or(d.checkBounds(), d.checkRails(&c.Rails), d.checkSilences(c.Findings.Silence)); err != nil {
		return nil, err
	}
	if d.nodes["probe"] == nil {
		c.Probe = nil
		return c, nil
	}
	if err := d.checkProbe(c.Probe, l); err != nil {
		return nil, err
	}
	return c, nil
}

// syntaxError rewrites an error of the YAML parser, which has the line number only in its text, in the form of
// other errors.
func syntaxError(file string, err error) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	if at, found := strings.CutPrefix(text, "line "); found {
		line, problem, _ := strings.Cut(at, ": ")
		return fmt.Errorf("%s:%s: invalid YAML: %s", file, line, problem)
	}
	return fmt.Errorf("%s: invalid YAML: %s", file, text)
}

// Timeouts of reading the configuration, each file that it names, and a pipe, whose timeout is the shortest.
const (
	loadTimeout = 5 * time.Second
	fileTimeout = 2 * time.Second
	pipeTimeout = 4 * time.Second
)

// maxFile is the maximum size of a file in bytes.
const maxFile = 1 << 20

// Loader reads configurations and the files that they name. A file that hangs delays one load, and later ones not at
// all. The zero value is ready to use.
type Loader struct {
	lanes lane.Group[content]
	open  openFunc // opens the files that the configuration names; nil: [secret.ReadFile]
}

type openFunc func(path string, limit int) ([]byte, error)

type content struct {
	data []byte
	err  error
}

// read reads a file in its lane. Its errors have the type [*fs.PathError].
func (l *Loader) read(path string, timeout time.Duration, open openFunc) ([]byte, error) {
	res := l.lanes.Run(timeout, []string{path}, func(string) content {
		data, err := open(path, maxFile)
		return content{data, err}
	})[0]
	if res.Err != nil {
		err := fmt.Errorf("%w: check that its file system is reachable", res.Err)
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return res.Value.data, res.Value.err
}

// readAny reads up to limit+1 bytes of a file, or of a pipe such as a shell's <(command). A pipe without a writer
// fails after pipeTimeout: a read that hangs would keep later loads from reading the path.
func readAny(path string, limit int) ([]byte, error) {
	for end := time.Now().Add(pipeTimeout); ; time.Sleep(pipeTimeout / 20) {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		_ = f.SetReadDeadline(end) // regular files have no deadline
		data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
		info, statErr := f.Stat()
		err = errors.Join(err, statErr, f.Close())
		noWriter := err == nil && len(data) == 0 && info.Mode()&fs.ModeNamedPipe != 0
		if !noWriter && !errors.Is(err, os.ErrDeadlineExceeded) {
			return data, err
		}
		if !time.Now().Before(end) {
			return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("a pipe into which nobody writes")}
		}
	}
}

// readNamed reads a file that the configuration names. Its errors omit the path, which the caller's message has.
func (l *Loader) readNamed(path string) ([]byte, error) {
	open := l.open
	if open == nil {
		open = secret.ReadFile
	}
	data, err := l.read(path, fileTimeout, open)
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return data, err
}

func (d *document) checkFiles(s *options.Security, l *Loader) error {
	for _, f := range []struct {
		key   string
		path  *string
		check func(data []byte, err error) error
	}{
		{"probe.token_file", &s.TokenFile, checkToken},
		{"probe.tls.cert_file", &s.CertFile, checkFile},
		{"probe.tls.key_file", &s.KeyFile, checkFile},
		{"probe.tls.client_ca_file", &s.ClientCAFile, checkFile},
	} {
		if *f.path == "" {
			continue
		}
		if !filepath.IsAbs(*f.path) {
			*f.path = filepath.Join(filepath.Dir(d.file), *f.path)
		}
		if err := f.check(l.readNamed(*f.path)); err != nil {
			return d.errorf(d.nodes[f.key], "%s %q: %w", f.key, *f.path, err)
		}
	}
	return nil
}

func checkFile(data []byte, err error) error {
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("empty")
	}
	return err
}

// CheckToken returns an error if the file at path cannot be used as the shared secret.
func CheckToken(path string) error { return checkToken(new(Loader).readNamed(path)) }

func checkToken(data []byte, err error) error {
	if err == nil {
		_, err = secret.Tokens(data)
	}
	if err != nil {
		err = fmt.Errorf("%w; it must hold the secret that all peers share, or two of them, one per line", err)
	}
	return err
}
