package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
)

// fileTime bounds the time that a file may take to answer, maxFile its size in bytes.
const (
	fileTime = 2 * time.Second
	maxFile  = 1 << 20
)

// Loader reads configurations, and the files that they name. A file that hangs delays one load by fileTime, later ones
// not at all.
type Loader struct {
	lanes lane.Group[content]
	open  func(path string, limit int) ([]byte, error) // nil: [secret.ReadFile]
}

// content is the result of a read.
type content struct {
	data []byte
	err  error
}

// checkFiles makes the files of the probe absolute and checks what they hold.
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
		if err := f.check(l.read(*f.path)); err != nil {
			return d.errorf(d.nodes[f.key], "%s %q: %w", f.key, *f.path, err)
		}
	}
	return nil
}

// read reads a small regular file.
func (l *Loader) read(path string) ([]byte, error) {
	open := l.open
	if open == nil {
		open = secret.ReadFile
	}
	res := l.lanes.Run(fileTime, []string{path}, func(string) content {
		data, err := open(path, maxFile)
		return content{data, err}
	})[0]
	if res.Err != nil {
		return nil, fmt.Errorf("%w: check that its file system is reachable", res.Err)
	}
	if p, ok := errors.AsType[*fs.PathError](res.Value.err); ok {
		return res.Value.data, p.Err // the message has operation and path already
	}
	return res.Value.data, res.Value.err
}

func checkFile(data []byte, err error) error {
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("empty")
	}
	return err
}

// CheckToken says what is wrong with the file of the shared secret, and what it must hold; nil when it is good.
func CheckToken(path string) error { return checkToken(new(Loader).read(path)) }

func checkToken(data []byte, err error) error {
	if err == nil {
		_, err = secret.Tokens(data)
	}
	if err != nil {
		err = fmt.Errorf("%w; it must hold the secret that all peers share, or two of them, one per line", err)
	}
	return err
}
