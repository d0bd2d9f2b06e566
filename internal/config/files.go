package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
)

// Timeouts of reading the configuration, and each file that it names.
const (
	loadTimeout = 5 * time.Second
	fileTimeout = 2 * time.Second
)

// maxFile is the maximum size of a file in bytes.
const maxFile = 1 << 20

// Loader reads configurations and the files that they name. A file that hangs delays one load, and later ones not at
// all. The zero value is ready to use.
type Loader struct {
	lanes lane.Group[content]
	open  openFunc // of the files that the configuration names; nil: [secret.ReadFile]
}

// openFunc reads a file of at most limit bytes.
type openFunc func(path string, limit int) ([]byte, error)

type content struct {
	data []byte
	err  error
}

// read reads a file in its lane. Its errors are of type [*fs.PathError].
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

// readAny reads up to limit+1 bytes of a file, or of a pipe such as a shell's <(command).
func readAny(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

// readNamed reads a file that the configuration names. Its errors leave out the path, which the caller's message has.
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

// checkFiles makes the files of the probe absolute and checks their content.
func (d *document) checkFiles(p *Probe, l *Loader) error {
	for _, f := range []struct {
		key   string
		path  *string
		check func(data []byte, err error) error
	}{
		{"probe.token_file", &p.TokenFile, checkToken},
		{"probe.tls.cert_file", &p.TLS.CertFile, checkFile},
		{"probe.tls.key_file", &p.TLS.KeyFile, checkFile},
		{"probe.tls.client_ca_file", &p.TLS.ClientCAFile, checkFile},
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

// CheckToken returns why the file at path cannot be used as the shared secret; nil when it can.
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
