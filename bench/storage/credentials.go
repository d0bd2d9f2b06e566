package storage

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const gcsScope = "https://www.googleapis.com/auth/devstorage.read_write"

// plainAllowed returns an error if a URL would send credentials over a network in clear text.
func plainAllowed(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("endpoint %s://%s: use https, plain HTTP is for loopback only", u.Scheme, u.Host)
}

// maxAnswer bounds the responses of a server, except the bytes of an object. Parsed, they take several times as much
// memory.
const maxAnswer = 4 << 20

// guard refuses plain HTTP for every request, including redirected ones, and bounds the responses.
type guard struct{ http.RoundTripper }

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := plainAllowed(r.URL); err != nil {
		return nil, err
	}
	resp, err := g.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	isObject := r.Header.Get("Range") != "" && (resp.StatusCode == http.StatusOK ||
		resp.StatusCode == http.StatusPartialContent)
	if !isObject {
		resp.Body = &bounded{resp.Body, maxAnswer}
	}
	return resp, nil
}

// bounded fails after left bytes.
type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the server's answer is longer than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// s3Credentials returns AWS_* variables, else ~/.aws/credentials with AWS_PROFILE, else the role of the machine.
func s3Credentials() *credentials.Credentials {
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
}

// gcsCredentials returns the HMAC keys in GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, else application default
// credentials, which the transport adds to unsigned requests.
func gcsCredentials(ctx context.Context, base http.RoundTripper) (*credentials.Credentials, http.RoundTripper, error) {
	if id, secret := os.Getenv("GS_ACCESS_KEY_ID"), os.Getenv("GS_SECRET_ACCESS_KEY"); id != "" && secret != "" {
		return credentials.NewStaticV4(id, secret, ""), base, nil
	}
	source, err := google.DefaultTokenSource(ctx, gcsScope)
	if err != nil {
		return nil, nil, fmt.Errorf("application default credentials: %w", err)
	}
	return credentials.NewStaticV4("", "", ""), &oauth2.Transport{Source: source, Base: base}, nil
}
