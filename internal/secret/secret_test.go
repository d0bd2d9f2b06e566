package secret

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReadFile: regular files within the limit are read; a pipe, a device and a directory are refused at once.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{"token": "sesame\n", "limit": strings.Repeat("x", 64),
		"over": strings.Repeat("x", 65)} {
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("token", in("link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(in("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path, want, says string
	}{
		{in("token"), "sesame\n", ""},
		{in("link"), "sesame\n", ""},
		{in("limit"), strings.Repeat("x", 64), ""},
		{in("over"), "", "more than 64 bytes"},
		{in("none"), "", "no such file"},
		{in("pipe"), "", "not a regular file"},
		{dir, "", "not a regular file"},
		{"/dev/zero", "", "not a regular file"},
	} {
		start := time.Now()
		data, err := ReadFile(tc.path, 64)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.path, err, tc.says)
		}
		if err == nil && string(data) != tc.want {
			t.Errorf("%s: %q", tc.path, data)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %v", tc.path, took)
		}
	}
	if _, err := ReadFile(in("pipe"), 64); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestTokens(t *testing.T) {
	for _, tc := range []struct {
		data string
		want []string
		says string
	}{
		{"sesame", []string{"sesame"}, ""},
		{" sesame \r\n", []string{"sesame"}, ""},
		{"one two\n", []string{"one two"}, ""},
		{"new\nold\n", []string{"new", "old"}, ""},
		{"\nnew\r\n\r\nold", []string{"new", "old"}, ""},
		{strings.Repeat("x", MaxToken) + "\n", []string{strings.Repeat("x", MaxToken)}, ""},
		{strings.Repeat("x", MaxToken+1), nil, "longer than 4096 bytes"},
		{"", nil, "empty"},
		{" \n\t\n", nil, "empty"},
		{"a\nb\nc\n", nil, "3 lines; at most 2 are allowed"},
	} {
		got, err := Tokens([]byte(tc.data))
		if !slices.Equal(got,
			tc.want) || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.20q: %q, %v, want %q %q", tc.data, got, err, tc.want, tc.says)
		}
	}
}
