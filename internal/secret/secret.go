// Package secret reads small files with tokens, keys and certificates, and never blocks on a pipe or device.
package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Limits of a token file, and the length below which a token is too easy to guess.
const (
	MaxTokens  = 2    // the current token and its successor
	MaxToken   = 4096 // bytes of the whole file, without surrounding space
	ShortToken = 16   // bytes
)

// ErrNotRegular is returned if the path names a pipe, device, socket or directory.
var ErrNotRegular = errors.New("not a regular file")

// ReadFile returns the content of a regular file of at most limit bytes. It may hang if the file system does: call
// it in a lane.
func ReadFile(path string, limit int) ([]byte, error) {
	if err := regular(path, os.Stat); err != nil { // before open: opening a device may have effects
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// in case the file was replaced meanwhile
	if err := regular(path, func(string) (os.FileInfo, error) { return f.Stat() }); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", limit)}
	}
	return data, err
}

func regular(path string, stat func(string) (os.FileInfo, error)) error {
	info, err := stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	return err
}

// Tokens returns the tokens of a token file: one or two, one per line. Blank lines and surrounding space are
// ignored.
func Tokens(data []byte) ([]string, error) {
	if len(bytes.TrimSpace(data)) > MaxToken {
		return nil, fmt.Errorf("longer than %d bytes", MaxToken)
	}
	var tokens []string
	for line := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if token := string(bytes.TrimSpace(line)); token != "" {
			tokens = append(tokens, token)
		}
	}
	switch {
	case len(tokens) == 0:
		return nil, errors.New("empty")
	case len(tokens) > MaxTokens:
		return nil, fmt.Errorf("%d lines; at most %d are allowed", len(tokens), MaxTokens)
	}
	return tokens, nil
}
