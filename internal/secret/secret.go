// Package secret reads small files with tokens, keys and certificates. It refuses everything but regular files, so that
// a pipe or a device cannot block the reader.
package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Bounds on the token file, and the length below which a token deserves a warning.
const (
	MaxTokens  = 2    // the one in use and its successor
	MaxToken   = 4096 // bytes of the whole file, without blanks around it
	ShortToken = 16   // bytes; a shorter token can be guessed
)

// ErrNotRegular says that the path names a pipe, device, socket or directory.
var ErrNotRegular = errors.New("not a regular file")

// ReadFile returns the content of a regular file of at most limit bytes. It hangs where the file system does, so
// callers that must not wait read in a lane.
func ReadFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path) // before open: opening a device may have effects
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // it was replaced since
		err = &os.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("more than %d bytes", limit)}
	}
	return data, err
}

// Tokens returns the one or two tokens of a token file, one per line, without blank lines and space around them.
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
