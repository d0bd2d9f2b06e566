package http

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/time/rate"

	"github.com/railscope/railscope/internal/secret"
)

// maxWebFile is the maximum size of the file of --web.config.file in bytes.
const maxWebFile = 1 << 20

// webFile is the file of --web.config.file, in the format of exporter-toolkit, which makes the TLS settings from
// it. The toolkit's own handler is not used: wrong guesses displace the correct password from its cache, and its
// owner then waits behind all of them. Safe for concurrent use.
type webFile struct {
	path string

	mu     sync.Mutex // protects all following fields
	text   []byte     // text that was parsed last
	config *web.Config
	err    error
}

// read returns the current configuration.
func (f *webFile) read() (*web.Config, error) {
	text, err := secret.ReadFile(f.path, maxWebFile)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == nil || !bytes.Equal(f.text, text) {
		f.text = append([]byte{}, text...)
		f.config, f.err = parseWeb(f.path, text)
	}
	return f.config, f.err
}

func parseWeb(path string, text []byte) (*web.Config, error) {
	c := &web.Config{TLSConfig: web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(path))
	return c, nil
}

// tls returns the TLS settings; nil: none.
func (f *webFile) tls() (*tls.Config, error) {
	c, err := f.read()
	if err != nil || !c.TLSConfig.IsEnabled() {
		return nil, err
	}
	config, err := web.ConfigToTLSConfig(&c.TLSConfig)
	if err == nil {
		config.NextProtos = []string{"http/1.1"}
	}
	return config, err
}

// protect wraps the handler of a server with the checks that the file configures.
func (f *webFile) protect(server *http.Server, logger *slog.Logger, refused func(address string)) error {
	c, err := f.read()
	if err != nil {
		return err
	}
	server.TLSConfig, err = f.tls()
	if err != nil {
		return err
	}
	if server.TLSConfig != nil {
		server.TLSConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := f.tls()
			if err == nil && config == nil {
				err = errors.New(f.path + " has no TLS any longer: restart railscope to serve without")
			}
			return config, err
		}
	}
	g := &guard{file: f, handler: server.Handler, logger: logger, logins: newLogins(), refused: refused}
	if every := c.RateLimiterConfig.Interval; every != 0 {
		g.limiter = rate.NewLimiter(rate.Every(every), c.RateLimiterConfig.Burst)
	}
	server.Handler = g
	return nil
}

// guard applies the file's rules to requests.
type guard struct {
	file    *webFile
	handler http.Handler
	logger  *slog.Logger
	limiter *rate.Limiter // nil: none
	logins  *logins
	refused func(address string) // called for a login that is refused without a check
}

// ServeHTTP implements [http.Handler].
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := g.file.read()
	if err != nil {
		g.logger.Error("Web configuration not readable", "err", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	if g.limiter != nil && !g.limiter.Allow() {
		http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
		return
	}
	for k, v := range c.HTTPConfig.Header {
		w.Header().Set(k, v)
	}
	if len(c.Users) == 0 {
		g.handler.ServeHTTP(w, r)
		return
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		unauthorized(w)
		return
	}
	switch g.logins.check(r.RemoteAddr, user, password, string(c.Users[user])) {
	case loginRight:
		g.handler.ServeHTTP(w, r)
	case loginWrong:
		unauthorized(w)
	case loginRefused:
		g.refused(r.RemoteAddr)
		w.Header().Set("Retry-After", retryLogin)
		http.Error(w, "too many failed logins from this address: try again later", http.StatusTooManyRequests)
	}
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Basic")
	http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
}
