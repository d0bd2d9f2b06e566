package probe

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// maxSecretFile bounds a token, a key or a bundle of certificates.
const maxSecretFile = 1 << 20

// readSecret reads a small file each time it is needed: a token or certificate
// that was replaced holds from the next connection on.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecretFile {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxSecretFile)
	}
	return b, nil
}

// token returns the shared secret, empty when none is configured.
func (s Security) token() (string, error) {
	if s.TokenFile == "" {
		return "", nil
	}
	b, err := readSecret(s.TokenFile)
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(b))
	if token == "" {
		return "", fmt.Errorf("%s is empty: it must hold the secret that all peers share", s.TokenFile)
	}
	return token, nil
}

// tls reports whether the control channel is TLS.
func (s Security) tls() bool { return s.CertFile != "" || s.ClientCAFile != "" }

// check refuses to answer peers that need not prove anything, unless that is
// written out.
func (s Security) check() error {
	if s.TokenFile == "" && s.ClientCAFile == "" && !s.Insecure {
		return errors.New("the probe does not answer without a token_file or tls with a client_ca_file (or insecure: true, which lets anyone use the rails)")
	}
	if s.tls() {
		if _, err := s.certificate(); err != nil {
			return err
		}
		if _, err := s.pool(); err != nil {
			return err
		}
	}
	_, err := s.token()
	return err
}

const bearer = "Bearer "

// admit reports whether a request proves that it comes from a peer. The
// certificate, where one is asked for, was checked when the connection was made.
func (s Security) admit(r *http.Request) error {
	if s.TokenFile == "" {
		return nil
	}
	want, err := s.token()
	if err != nil { // where the file lies is no business of those who have not shown the token
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return fmt.Errorf("the peer cannot use its own token_file: %s", strings.ReplaceAll(err.Error(), s.TokenFile, "it"))
	}
	got, _ := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want)) // equal lengths, whatever was sent
	if subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return errors.New("the token is not this node's: both ends need the same token_file")
	}
	return nil
}

func (s Security) certificate() (*tls.Certificate, error) {
	cert, err := readSecret(s.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := readSecret(s.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", s.CertFile, s.KeyFile, err)
	}
	return &pair, nil
}

func (s Security) pool() (*x509.CertPool, error) {
	if s.ClientCAFile == "" {
		return nil, nil
	}
	b, err := readSecret(s.ClientCAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", s.ClientCAFile)
	}
	return pool, nil
}

// serverTLS is the responder's side; nil where the channel is not TLS. Files are
// read at every connection.
func (s Security) serverTLS() *tls.Config {
	if !s.tls() {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := s.certificate()
		if err != nil {
			return nil, err
		}
		pool, err := s.pool()
		if err != nil {
			return nil, err
		}
		c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}}
		if pool != nil {
			c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
		}
		return c, nil
	}}
}

// clientTLS is the asker's side, read anew for every round. The CA that signs
// the peers' certificates signs them as servers, too; without one the system's
// CAs hold.
func (s Security) clientTLS() (*tls.Config, error) {
	if !s.tls() {
		return nil, nil
	}
	pool, err := s.pool()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: s.Name}
	if s.CertFile != "" {
		cert, err := s.certificate()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{*cert}
	}
	return c, nil
}
