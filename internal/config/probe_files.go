package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// maxToken bounds the shared secret, in bytes.
const maxToken = 4096

func (r probeReader) tls(n *yaml.Node) error { return r.mapping(n, "probe.tls", r.tlsKeys()) }

// tlsKeys are the keys below probe.tls.
func (r probeReader) tlsKeys() []key {
	s := &r.opts.Security
	return []key{
		written("cert_file", aFile, "", "", "Certificate of this node, in PEM, with those between it and the authority. With it the control channel is TLS 1.3. "+readAgain, r.file("tls.cert_file", &s.CertFile, checkFile)),
		written("key_file", aFile, "", "", "Its key. "+readAgain, r.file("tls.key_file", &s.KeyFile, checkFile)),
		written("client_ca_file", aFile, "", "", "Authorities that sign the certificates of all peers, in both directions: mutual TLS. A peer without such a certificate is not answered. Without it the system's authorities hold for the peers that are asked. "+readAgain,
			r.file("tls.client_ca_file", &s.ClientCAFile, checkFile)),
	}
}

// file reads the name of a file that must be there. A relative one is looked
// for beside the configuration, as in Prometheus' own.
func (r probeReader) file(key string, path *string, check func(path string) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		s, err := r.word(n, key, "the name of a file")
		if err != nil {
			return err
		}
		if !filepath.IsAbs(s) {
			s = filepath.Join(filepath.Dir(r.parser.file), s)
		}
		if err := check(s); err != nil {
			return r.errorf(n, "probe.%s %q: %w", key, s, err)
		}
		*path = s
		return nil
	}
}

// readSmall reads the beginning of a file, more than any check needs. Only
// regular files are opened: nothing else ends for sure.
func readSmall(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<16))
	return data, bare(err)
}

// bare is the error without operation and path, which the message has already.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func checkFile(path string) error {
	data, err := readSmall(path)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("empty")
	}
	return err
}

// CheckToken says what is wrong with the file of the shared secret, and what it
// must hold; nil when it can be used.
func CheckToken(path string) error {
	data, err := readSmall(path)
	data = bytes.TrimSpace(data)
	switch {
	case err != nil:
	case len(data) == 0:
		err = errors.New("empty")
	case len(data) > maxToken:
		err = fmt.Errorf("longer than %d bytes", maxToken)
	case bytes.ContainsAny(data, "\n\r"):
		err = errors.New("more than one line")
	default:
		return nil
	}
	return fmt.Errorf("%w; it must hold the secret that all peers share, in one line", err)
}
