package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
)

func (r probeReader) tls(n *yaml.Node) error { return r.mapping(n, "probe.tls", r.tlsKeys()) }

// tlsKeys are the keys below probe.tls.
func (r probeReader) tlsKeys() []key {
	s := &r.opts.Security
	return []key{
		written("cert_file", aFile, "", "", "Certificate of this node, in PEM, with those between it and the authority. With it the control channel is TLS 1.3. "+readAgain, r.file("tls.cert_file", &s.CertFile, checkFile)),
		written("key_file", aFile, "", "", "Its key. "+readAgain, r.file("tls.key_file", &s.KeyFile, checkFile)),
		written("client_ca_file", aFile, "", "", "Authorities that sign the certificates of all peers, in both directions: mutual TLS. A peer without such a certificate is not answered. Without it the system's authorities hold for the peers that are asked. "+readAgain,
			r.file("tls.client_ca_file", &s.ClientCAFile, checkFile)),
		written("client_allowed_names", "list of DNS names or URIs", "any", fmt.Sprintf("1 to %d; needs `client_ca_file`", maxAllowedNames),
			"Which peers are answered, of those that have a certificate of the authority: one DNS name or URI of its subjectAltName must be in the list. `*.` at the beginning stands for one label. The common name does not count.", r.allowedNames),
	}
}

// file reads the name of a file that must be there. A relative one is looked
// for beside the configuration, as in Prometheus' own.
func (r probeReader) file(key string, path *string, check func(data []byte, err error) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		s, err := r.word(n, key, "the name of a file")
		if err != nil {
			return err
		}
		if !filepath.IsAbs(s) {
			s = filepath.Join(filepath.Dir(r.parser.file), s)
		}
		data, err := r.files.read(s)
		if err = check(data, err); err != nil {
			return r.errorf(n, "probe.%s %q: %w", key, s, err)
		}
		*path = s
		return nil
	}
}

// Loader reads configurations, and the files that they name. A file that does not
// answer holds up neither it nor, when it is asked again, another thread.
type Loader struct {
	lanes lane.Group[content]
	open  func(path string, limit int) ([]byte, error) // nil: [secret.ReadFile]
}

// content is what a read came to.
type content struct {
	data []byte
	err  error
}

// fileTime is how long a file may take to answer, maxFile how large one may be.
const (
	fileTime = 2 * time.Second
	maxFile  = 1 << 20
)

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
		return nil, fmt.Errorf("%w: is its file system there?", res.Err)
	}
	return res.Value.data, bare(res.Value.err)
}

// bare is the error without operation and path, which the message has already.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func checkFile(data []byte, err error) error {
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = errors.New("empty")
	}
	return err
}

// CheckToken says what is wrong with the file of the shared secret, and what it
// must hold; nil when it can be used.
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

// maxAllowedNames bounds tls.client_allowed_names.
const maxAllowedNames = 1000

// allowedNames reads which names a peer's certificate may carry.
func (r probeReader) allowedNames(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxAllowedNames {
		return r.errorf(n, "probe.tls.client_allowed_names must be a list of 1 to %d names, such as [\"*.gpu.example.com\"], not %s", maxAllowedNames, kindName(n))
	}
	for _, item := range n.Content {
		if item = resolve(item); item.Kind != yaml.ScalarNode || item.Tag == "!!null" || !validCertificateName(item.Value) {
			return r.errorf(item, "probe.tls.client_allowed_names: a name must be a DNS name, such as spark-02.example.com or *.gpu.example.com, or a URI, such as spiffe://example.com/railscope, not %s", kindName(item))
		}
		r.opts.Security.ClientAllowedNames = append(r.opts.Security.ClientAllowedNames, item.Value)
	}
	return nil
}

// validCertificateName reports whether a certificate can carry the name: a DNS
// name, perhaps with *. before it, or a URI.
func validCertificateName(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && len(s) <= 2048 {
		return u.Host != "" || u.Opaque != ""
	}
	host := strings.TrimPrefix(s, "*.")
	_, err := netip.ParseAddr(host)
	return err != nil && validHost(host)
}
