package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestBehindAPrefix: behind a proxy that serves it under a prefix, and with the metrics at another path, the page
// works, and its links are right.
func TestBehindAPrefix(t *testing.T) {
	e := serve(t, newMachine(t, "one-rail-dead"), "--web.telemetry-path=/of/node")
	target, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.StripPrefix("/nodes/n1", httputil.NewSingleHostReverseProxy(target)))
	t.Cleanup(proxy.Close)
	b := newTab(t) // ends before the proxy, which waits for its streams
	b.open(proxy.URL + "/nodes/n1/")
	b.live()
	for _, link := range value[[]string](b,
		`[...document.querySelectorAll('footer a')].map(a => a.href).filter(h => h.startsWith(location.origin))`) {
		resp, err := http.Get(link)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", link, resp.Status)
		}
	}
	b.clean(strings.TrimPrefix(proxy.URL, "http://"))
}

// TestTLSAndPassword: the page works with a certificate and a password, and nothing is served without the password.
func TestTLSAndPassword(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	config := filepath.Join(dir, "web.yml")
	// The password is "look".
	write(t, config, []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\nbasic_auth_users: {ada: "+
		"'$2a$04$/Rdgji/758He9U/M4c/RmexMc3GfJPBNKoZu2qp0R/kqlHWmerrn.'}\n"))
	e, b := serve(t, newMachine(t, "one-rail-dead"), "--web.config.file="+config), newTab(t, chromedp.IgnoreCertErrors)
	b.open("https://ada:look@" + e.address + "/")
	b.live()
	b.clean(e.address)
	resp, err := (&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}).RoundTrip(request(t,
		"https://"+e.address+"/-/page/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stream without the password: %s", resp.Status)
	}
}

func request(t *testing.T, address string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificate writes cert.pem and key.pem for the loopback address.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	what := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, what, what, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	write(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
