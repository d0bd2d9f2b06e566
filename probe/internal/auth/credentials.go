package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/railscope/railscope/probe/options"
)

// Credentials are the configured ways to prove who this node is and to check peers, and the files that they name.
type Credentials struct {
	options.Security
	*SecretFiles
}

// Check refuses to answer peers that prove nothing, unless Insecure is set, and files that cannot be used.
func (c Credentials) Check() error {
	if c.TokenFile == "" && c.ClientCAFile == "" && !c.Insecure {
		return errors.New("the probe needs a token_file, or tls with a client_ca_file, to answer peers (or insecure: " +
			"true, which lets anyone use the rails)")
	}
	if c.TLS() {
		if _, err := c.certificate(c.CertFile, c.KeyFile); err != nil {
			return err
		}
		if _, err := c.pool(c.ClientCAFile); err != nil {
			return err
		}
	}
	_, err := c.Tokens(c.TokenFile)
	return err
}

// ServerTLS is the responder's side. Files are read for each connection.
func (c Credentials) ServerTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, err := c.certificate(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, err
			}
			pool, err := c.pool(c.ClientCAFile)
			if err != nil {
				return nil, err
			}
			// With tickets, a peer could resume a session that an earlier authority allowed.
			conf := &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, SessionTicketsDisabled: true,
			}
			if pool != nil {
				conf.ClientCAs, conf.ClientAuth = pool, tls.RequireAndVerifyClientCert
			}
			return conf, nil
		}}
}

// ClientTLS is the asker's side, read for each round. The CA of the peers' certificates signs them as servers as well;
// without one the system's CAs apply. Where TLS is not configured the token proves the peer, or nothing does.
func (c Credentials) ClientTLS() (*tls.Config, error) {
	if !c.TLS() {
		return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, nil
	}
	pool, err := c.pool(c.ClientCAFile)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: c.Name}
	if c.CertFile != "" {
		cert, err := c.certificate(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{*cert}
	}
	return conf, nil
}

// CheckCertificate refuses a request on a connection whose certificate is not valid by the current files and
// configuration, whatever they were when the connection was made.
func (c Credentials) CheckCertificate(state *tls.ConnectionState) error {
	pool, err := c.pool(c.ClientCAFile)
	if err != nil {
		return errors.New("the peer cannot use its own client_ca_file")
	}
	if pool == nil {
		return nil
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the peer requires a certificate")
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

// namedBy reports whether a certificate has one of the names: a DNS name, where a leading *. matches one label, or a
// URI. The common name does not count.
func namedBy(cert *x509.Certificate, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		return slices.ContainsFunc(cert.DNSNames, func(name string) bool { return sameName(name, pattern) }) ||
			slices.ContainsFunc(cert.URIs, func(uri *url.URL) bool { return uri.String() == pattern })
	})
}

func sameName(name, pattern string) bool {
	if strings.EqualFold(name, pattern) {
		return true
	}
	parent, wild := strings.CutPrefix(pattern, "*.")
	label, rest, dotted := strings.Cut(name, ".")
	return wild && dotted && label != "" && label != "*" && strings.EqualFold(rest, parent)
}
