package kubernetes

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// TestWebConfiguration: railscope serves with the web configuration that the chart renders, by TLS, and requires
// the password.
func TestWebConfiguration(t *testing.T) {
	text, err := template(loadChart(t), values(t)["web"])
	if err != nil {
		t.Fatal(err)
	}
	secret := only[core.Secret](t, decode(t, "web", text))
	dir := t.TempDir()
	file := filepath.Join(dir, "web-config.yml")
	write(t, file, secret.StringData["web-config.yml"])
	roots := certificate(t, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	cmd := exec.CommandContext(t.Context(), binary(t), "serve", "--web.listen-address=127.0.0.1:0",
		"--web.config.file="+file, "--path.sysfs="+bareSysfs(t), "--path.procfs="+t.TempDir())
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it was killed
	defer cmd.Process.Kill()
	address := ""
	for lines := bufio.NewScanner(log); address == "" && lines.Scan(); {
		if m := regexp.MustCompile(`msg="Listening on" address=(\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
	}
	if address == "" {
		t.Fatal("it does not listen")
	}
	client := http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "railscope"}},
	}
	for _, tc := range []struct {
		password string
		want     int
	}{{"", http.StatusUnauthorized}, {"open", http.StatusUnauthorized}, {"sesame", http.StatusOK}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.password != "" {
			req.SetBasicAuth("prometheus", tc.password)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tc.want {
			t.Errorf("password %q: %s, want %d", tc.password, res.Status, tc.want)
		}
	}
}

// certificate writes a self-signed certificate for the name railscope and its key, and returns a pool that trusts
// it.
func certificate(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"railscope"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, certFile, string(cert))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cert) {
		t.Fatal(fmt.Errorf("no certificate in %s", cert))
	}
	return roots
}
