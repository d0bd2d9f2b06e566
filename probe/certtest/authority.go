// Package certtest makes certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/options"
)

// Authority is a CA of a test.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	File string // file with its certificate
	// Addresses are those that its certificates are for; by default the loopback address.
	Addresses []net.IP
}

// NewAuthority returns an authority.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb), Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := a.Sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "peers"}}, a.key)
	a.cert, _ = x509.ParseCertificate(der)
	a.File = a.write(filepath.Join(tb.TempDir(), "ca.pem"), "CERTIFICATE", der)
	return a
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// write writes a file in PEM, and returns its name.
func (a *Authority) write(path, kind string, der []byte) string {
	a.tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return path
}

// Sign returns a certificate from a template, for a key, in DER.
func (a *Authority) Sign(tmpl *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.tb.Helper()
	tmpl.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.cert
	if parent == nil {
		parent = tmpl
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return der
}

// Issue writes a certificate and its key, and returns settings that use them.
func (a *Authority) Issue(dir, name string, uris ...string) options.Security {
	a.tb.Helper()
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"peers.ns.svc"},
		IPAddresses: a.Addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err != nil {
			a.tb.Fatal(err)
		}
		cert.URIs = append(cert.URIs, u)
	}
	key := newKey(a.tb)
	der := a.Sign(cert, key)
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return options.Security{ClientCAFile: a.File,
		CertFile: a.write(filepath.Join(dir, name+".pem"), "CERTIFICATE", der),
		KeyFile:  a.write(filepath.Join(dir, name+".key"), "EC PRIVATE KEY", private)}
}
