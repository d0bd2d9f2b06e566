package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRedacted: comments and secrets are removed; names of files and everything else stay.
func TestRedacted(t *testing.T) {
	const before = `# swordfish in a comment
rails: {names: {east: mlx5_0/1}} # swordfish
probe:
  # swordfish
  peers: [spark-02, "file:/etc/railscope/peers.yml"]
  token_file: /etc/railscope/token
  token: swordfish
  pkey: 0x8001
  tls: &t
    key_file: key.pem
    Password: 4711
    credentials: {user: swordfish, list: [swordfish, 1]}
otlp:
  endpoint: https://me:swordfish@collector:4318/v1
  headers:
    x-scope: swordfish
more: {<<: *t}
`
	const want = `rails: {names: {east: mlx5_0/1}}
probe:
  peers: [spark-02, "file:/etc/railscope/peers.yml"]
  token_file: /etc/railscope/token
  token: REMOVED
  pkey: 0x8001
  tls: &t
    key_file: key.pem
    Password: REMOVED
    credentials: {user: REMOVED, list: [REMOVED, REMOVED]}
otlp:
  endpoint: https://REMOVED@collector:4318/v1
  headers:
    x-scope: REMOVED
more: {!!merge <<: *t}
`
	path := filepath.Join(t.TempDir(), "railscope.yml")
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Redacted(path)
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%v (-want +got): %s", err, diff)
	}
	if got, err := redact([]byte("# swordfish\n")); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_, err = redact([]byte("a: b\nprobe: [swordfish"))
	if err == nil || strings.Contains(err.Error(), "swordfish") {
		t.Error(err)
	}
	if _, err := Redacted(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
