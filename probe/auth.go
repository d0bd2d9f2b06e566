package probe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// credentials are how this node proves who it is and checks who others are: the
// configuration, and the files that it names.
type credentials struct {
	Security
	files *secretFiles
}

// tokens returns the shared secrets, none when no file is configured.
func (c credentials) tokens() (tokens, error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	return c.files.tokens(c.TokenFile)
}

// tls reports whether the control channel is TLS.
func (s Security) tls() bool { return s.CertFile != "" || s.ClientCAFile != "" }

// check refuses to answer peers that need not prove anything, unless that is written out.
func (c credentials) check() error {
	if c.TokenFile == "" && c.ClientCAFile == "" && !c.Insecure {
		return errors.New("the probe does not answer without a token_file or tls with a client_ca_file (or " +
			"insecure: true, which lets anyone use the rails)")
	}
	if c.tls() {
		if _, err := c.files.certificate(c.CertFile, c.KeyFile); err != nil {
			return err
		}
		if _, err := c.pool(); err != nil {
			return err
		}
	}
	_, err := c.tokens()
	return err
}

func (c credentials) pool() (*x509.CertPool, error) {
	if c.ClientCAFile == "" {
		return nil, nil
	}
	return c.files.pool(c.ClientCAFile)
}

// serverTLS is the responder's side; nil where the channel is not TLS. Files are read at every connection.
func (c credentials) serverTLS() *tls.Config {
	if !c.tls() {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, err := c.files.certificate(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, err
			}
			pool, err := c.pool()
			if err != nil {
				return nil, err
			}
			// Without tickets nobody resumes what an earlier authority admitted.
			conf := &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, SessionTicketsDisabled: true,
			}
			if pool != nil {
				conf.ClientCAs, conf.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return conf, nil
		}}
}

// clientTLS is the asker's side, read anew for every round. The CA that signs the peers' certificates signs them as
// servers, too; without one the system's CAs hold.
func (c credentials) clientTLS() (*tls.Config, error) {
	if !c.tls() {
		return nil, nil
	}
	pool, err := c.pool()
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: c.Name}
	if c.CertFile != "" {
		cert, err := c.files.certificate(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{*cert}
	}
	return conf, nil
}

// checkCertificate refuses a request on a connection whose certificate is not good by what the files and the
// configuration say now, whatever they said when the connection was made.
func (c credentials) checkCertificate(state *tls.ConnectionState) error {
	pool, err := c.pool()
	if err != nil {
		return errors.New("the peer cannot use its own client_ca_file")
	}
	if pool == nil {
		return nil
	}
	if state == nil || len(state.PeerCertificates) == 0 {
		return errors.New("the peer asks for a certificate")
	}
	cert, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, other := range state.PeerCertificates[1:] {
		between.AddCert(other)
	}
	options := x509.VerifyOptions{
		Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if _, err := cert.Verify(options); err != nil {
		return fmt.Errorf("the peer does not accept this node's certificate: %w", err)
	}
	if len(c.ClientAllowedNames) > 0 && !namedBy(cert, c.ClientAllowedNames) {
		return errors.New("no name of this node's certificate is in the peer's client_allowed_names: " +
			"its names are the DNS names and URIs of the certificate's subjectAltName")
	}
	return nil
}

// namedBy reports whether a certificate has one of the names: a DNS name, where a
// leading *. stands for one label, or a URI. The common name does not count.
func namedBy(cert *x509.Certificate, allowed []string) bool {
	for _, name := range cert.DNSNames {
		if slices.ContainsFunc(allowed, func(pattern string) bool { return sameName(name, pattern) }) {
			return true
		}
	}
	for _, uri := range cert.URIs {
		if slices.Contains(allowed, uri.String()) {
			return true
		}
	}
	return false
}

func sameName(name, pattern string) bool {
	if strings.EqualFold(name, pattern) {
		return true
	}
	parent, wild := strings.CutPrefix(pattern, "*.")
	label, rest, dotted := strings.Cut(name, ".")
	return wild && dotted && label != "" && label != "*" && strings.EqualFold(rest, parent)
}
