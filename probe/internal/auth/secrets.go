package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/secret"
)

// MaxSecretFile is the largest file of a secret, in bytes.
const MaxSecretFile = 1 << 20

// SecretReadTime is how long a read of a file may take.
const SecretReadTime = time.Second

// SecretRetryAfter is when a file is read again whose read did not return.
const SecretRetryAfter = 30 * time.Second

// MaxStuckReads is how many reads of one file may hang at a time.
const MaxStuckReads = 4

// SecretFiles reads tokens and certificates whenever they are needed, so that a replaced file applies to the next
// request. If a file hangs, is gone or invalid, its last good value stays in use. Safe for concurrent use.
type SecretFiles struct {
	Read  func(path string) ([]byte, error)
	lanes lane.Group[Content]
	own   func() (*tls.Certificate, error) // the certificate of a node that has none

	mu        sync.Mutex // protects all following fields
	entries   map[string]*secretValue
	warned    map[string][sha256.Size]byte // token file → content with a warning
	fault     func(path string, err error)
	weakToken func(path string, bytes int)
}

// Content is the result of a read.
type Content struct {
	Data []byte
	Err  error
}

// secretValue is the last good value of a file, or a pair of files.
type secretValue struct {
	lock  chan struct{} // a semaphore; protects all following fields
	good  any
	fault string // why the files cannot be used; empty: they can
}

// NewSecretFiles returns an empty set of files.
func NewSecretFiles() *SecretFiles {
	return &SecretFiles{
		Read:      func(path string) ([]byte, error) { return secret.ReadFile(path, MaxSecretFile) },
		own:       sync.OnceValues(NewCertificate),
		entries:   map[string]*secretValue{},
		warned:    map[string][sha256.Size]byte{},
		fault:     func(string, error) {},
		weakToken: func(string, int) {},
	}
}

// NewCertificate returns a certificate that nobody verifies, with a key that is never stored.
func NewCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)},
		&x509.Certificate{}, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// SetObservers sets the functions that are called for files that cannot be used, and for weak tokens.
func (s *SecretFiles) SetObservers(fault func(path string, err error), short func(path string, bytes int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.weakToken = fault, short
}

// ResetWarnings repeats the warnings of weak tokens, once.
func (s *SecretFiles) ResetWarnings() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.warned)
}

// loadSecret returns what parse makes of the files, or the last good value while that fails.
func loadSecret[T any](s *SecretFiles, kind string, paths []string, parse func(data [][]byte) (T, error)) (T, error) {
	key := kind + "\x00" + strings.Join(paths, "\x00")
	s.mu.Lock()
	if s.entries[key] == nil {
		s.entries[key] = &secretValue{lock: make(chan struct{}, 1)}
	}
	v, fault := s.entries[key], s.fault
	s.mu.Unlock()
	v.lock <- struct{}{}
	defer func() { <-v.lock }()
	var value T
	var err error
	data := make([][]byte, len(paths))
	for i := 0; i < len(paths) && err == nil; i++ {
		data[i], err = s.readOne(paths[i])
	}
	if err == nil {
		value, err = parse(data)
	}
	if err == nil {
		if v.fault != "" {
			v.fault = ""
			fault(paths[0], nil)
		}
		v.good = value
		return value, nil
	}
	last, ok := v.good.(T)
	if !ok {
		return value, err
	}
	if v.fault != err.Error() {
		v.fault = err.Error()
		fault(paths[0], err)
	}
	return last, nil
}

// readOne reads a file within SecretReadTime. Reads of other files do not wait for one that hangs. After
// SecretRetryAfter another read is tried, because a repaired file system may never wake the threads that wait for it;
// and after 4 and 32 minutes more, so that a long outage does not use up all attempts.
func (s *SecretFiles) readOne(path string) ([]byte, error) {
	for i, patience := 0, SecretRetryAfter; i < MaxStuckReads; i, patience = i+1, 8*patience {
		res := s.lanes.Run(SecretReadTime, []string{path + "\x00" + strconv.Itoa(i)}, func(string) Content {
			data, err := s.Read(path)
			return Content{data, err}
		})[0]
		if res.State == lane.Done {
			return res.Value.Data, res.Value.Err
		}
		if res.State == lane.Died {
			return nil, fmt.Errorf("%s: %w", path, res.Err)
		}
		if res.State == lane.Late || time.Since(res.Since) < patience {
			break
		}
	}
	return nil, fmt.Errorf("%s: read hangs: is its file system available?", path) // without a time: logged once
}

// Tokens returns the shared secrets, none without a file.
func (s *SecretFiles) Tokens(path string) (Tokens, error) {
	if path == "" {
		return nil, nil
	}
	return loadSecret(s, "token", []string{path}, func(data [][]byte) (Tokens, error) {
		list, err := secret.Tokens(data[0])
		if err != nil {
			return nil, fmt.Errorf(
				"%s: %w: it must hold the secret that all peers share, or two of them, one per line", path, err)
		}
		s.warn(path, list, sha256.Sum256(data[0]))
		return list, nil
	})
}

// warn reports a token that can be guessed, once for each content.
func (s *SecretFiles) warn(path string, list Tokens, content [sha256.Size]byte) {
	shortest := len(slices.MinFunc(list, func(a, b string) int { return len(a) - len(b) }))
	s.mu.Lock()
	short, warned := s.weakToken, s.warned[path] == content
	s.warned[path] = content
	s.mu.Unlock()
	if !warned && shortest < secret.ShortToken {
		short(path, shortest)
	}
}

// certificate returns the certificate of a pair of files, or this process's own without them.
func (s *SecretFiles) certificate(cert, key string) (*tls.Certificate, error) {
	if cert == "" && key == "" {
		return s.own()
	}
	return loadSecret(s, "certificate", []string{cert, key}, func(data [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(data[0], data[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
		}
		return &pair, nil
	})
}

// pool returns the authorities of certificates, nil without a file.
func (s *SecretFiles) pool(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	return loadSecret(s, "authorities", []string{path}, func(data [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data[0]) {
			return nil, errors.New(path + " contains no PEM certificate")
		}
		return pool, nil
	})
}
