package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/status"
)

// remote is a railscope at a web port: --url and its credentials.
type remote struct {
	url, caFile, passwordFile string
	address                   *url.URL
}

// maxSecretFile is the maximum size of a file with a password or certificates, in bytes.
const maxSecretFile = 1 << 20

func (r *remote) define(cmd *kingpin.CmdClause, variable string) {
	cmd.Flag("url", "Address of a railscope to ask where none answers on this machine, such as "+
		"https://prometheus@spark-02:10091, with the user name.").
		Envar(variable + "_URL").PlaceHolder("URL").StringVar(&r.url)
	cmd.Flag("ca-file", "Authorities in PEM that sign its certificate; by default those of the system.").
		Envar(variable + "_CA_FILE").PlaceHolder("FILE").StringVar(&r.caFile)
	cmd.Flag("password-file", "File with the password of the user in --url.").
		Envar(variable + "_PASSWORD_FILE").PlaceHolder("FILE").StringVar(&r.passwordFile)
}

func (r *remote) parse() error {
	if r.url == "" {
		if r.caFile != "" || r.passwordFile != "" {
			return errors.New("--ca-file and --password-file need --url")
		}
		return nil
	}
	u, err := url.Parse(r.url)
	switch {
	case err != nil: // the text may contain a password
		return errors.New("--url must be http://HOST:PORT or https://HOST:PORT, such as https://spark-02:10091")
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("--url must be http://HOST:PORT or https://HOST:PORT, such as https://spark-02:10091, not %q",
			u.Redacted())
	case r.caFile != "" && u.Scheme != "https":
		return errors.New("--ca-file needs a --url that begins with https://")
	case r.passwordFile != "" && u.User.Username() == "":
		return errors.New("--password-file needs a user name in --url, such as https://prometheus@spark-02:10091")
	}
	r.address = u
	return nil
}

// get requests the status. It follows no redirects, which could send the password elsewhere, and uses no proxy.
func (r *remote) get(ctx context.Context) (*status.Status, error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if r.caFile != "" {
		data, err := secret.ReadFile(r.caFile, maxSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--ca-file %s: no certificate in PEM", r.caFile)
		}
	}
	user := r.address.User
	password, _ := user.Password()
	if r.passwordFile != "" {
		data, err := secret.ReadFile(r.passwordFile, maxSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--password-file: %w", err)
		}
		password = strings.TrimRight(string(data), "\r\n")
	}
	address := *r.address.JoinPath(status.Path)
	address.User = nil // errors contain the address
	client := &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return status.Get(ctx, client, address.String(), func(req *http.Request) {
		if user.Username() != "" {
			req.SetBasicAuth(user.Username(), password)
		}
	})
}
