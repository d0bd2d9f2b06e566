// Package httpclient makes clients of HTTP services whose address the user provides.
package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/prometheus/common/config"
)

// Address parses the URL of a flag. example is a valid URL for messages. Its errors say what to write, and do not
// repeat passwords.
func Address(text, example, configFlag string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("want a URL such as %s", example) // err would contain the password
	case u.User != nil:
		return nil, fmt.Errorf("credentials in a URL are visible in process lists: put them into the file of %s "+
			"(basic_auth, authorization)", configFlag)
	}
	return u, nil
}

// Transport returns a client's transport with the credentials and TLS settings of a file in the format of
// promtool's --http.config.file; empty: neither. Responses longer than most bytes fail with a
// [*http.MaxBytesError].
func Transport(file string, most int64) (http.RoundTripper, error) {
	cfg := &config.DefaultHTTPClientConfig
	if file != "" {
		var err error
		cfg, _, err = config.LoadHTTPConfigFile(file)
		if err != nil {
			return nil, err
		}
	}
	transport, err := config.NewRoundTripperFromConfig(*cfg, "railscope", config.WithUserAgent("railscope"))
	if err != nil {
		return nil, err
	}
	return bounded{transport, most}, nil
}

type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, b.most)
	return resp, nil
}

// TooLong reports whether a response exceeded the limit.
func TooLong(err error) bool {
	_, is := errors.AsType[*http.MaxBytesError](err)
	return is
}
