package storage

import "testing"

func TestPlainHTTPRefused(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for endpoint, ok := range map[string]bool{
		"http://s3.example": false, "http://10.0.0.1:9000": false, "ftp://localhost": false, "https://s3.example": true,
		"http://127.0.0.1:9000": true, "http://[::1]:9000": true, "http://localhost:9000": true, "": true,
		"http://localhost.example": false,
	} {
		if _, err := Open(t.Context(), "s3://bucket/prefix", Options{Endpoint: endpoint}); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %v", endpoint, err, ok)
		}
	}
	if _, err := Open(t.Context(), "ftp://x/y", Options{}); err == nil {
		t.Error("ftp:// was accepted")
	}
}
