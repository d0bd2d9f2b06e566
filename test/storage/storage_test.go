// Package storage tests railscope storage with a real S3 server, versitygw, and with a server that can be made to
// fail.
package storage

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// result is the part of the output that a script reads.
type result struct {
	Target     string `json:"target"`
	Bytes      int64  `json:"bytes"`
	Compressed *struct {
		Bytes       int64   `json:"bytes"`
		LoadSeconds float64 `json:"load_seconds"`
	} `json:"compressed"`
	SaveSeconds float64 `json:"save_seconds"`
	LoadSeconds float64 `json:"load_seconds"`
	Part        struct {
		Save, Load struct{ P50, P99 float64 }
	} `json:"part_seconds"`
	Failure string `json:"failure"`
}

// programs are railscope and railscope-bench in one directory, built once.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"railscope", "railscope-bench"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/"+name)
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "railscope")
}

func keys(secret string) []string {
	return []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=us-east-1",
		"AWS_EC2_METADATA_DISABLED=true"}
}

// storage runs railscope storage, and returns its results and exit code.
func storage(t *testing.T, program string, env []string, args ...string) ([]result, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"storage", "--format=json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, _ := cmd.Output()
	var list []result
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	t.Logf("%s%s", out, said.String())
	return list, cmd.ProcessState.ExitCode()
}

func (r result) whole(bytes int64) bool {
	return r.Failure == "" && r.Bytes == bytes && r.Compressed != nil && r.Compressed.Bytes >= bytes && r.Compressed.LoadSeconds > 0 && r.SaveSeconds > 0 && r.LoadSeconds > 0 &&
		r.Part.Save.P50 > 0 && r.Part.Save.P99 >= r.Part.Save.P50 && r.Part.Load.P50 > 0
}

// versity starts the server for a directory with a bucket, and returns its URL and the directory.
func versity(t *testing.T) (url, dir string) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(t.TempDir(), "versitygw")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/versity/versitygw/cmd/versitygw").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data", "bucket"), 0o755); err != nil {
		t.Fatal(err)
	}
	sidecar := filepath.Join(dir, "sidecar") // not every file system has extended attributes
	if err := os.Mkdir(sidecar, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.Command(program, "--port", address, "posix", "--sidecar", sidecar, filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=key", "ROOT_SECRET_KEY=secret")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("versitygw said:\n%s", said.String())
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			return "http://" + address, filepath.Join(dir, "data")
		}
		if time.Now().After(end) {
			t.Fatalf("versitygw does not listen: %v", err)
		}
	}
}

// files returns the files below a directory, including incomplete uploads.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == ".vgwlocks" {
			return filepath.SkipDir // the server's own directory
		}
		if err == nil && !d.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestVersity: a checkpoint is written to a real server and read back, targets that fail are rows, and nothing is
// left behind, also after an interruption.
func TestVersity(t *testing.T) {
	program := programs(t)
	url, dir := versity(t)
	const size = 23 << 20
	got, code := storage(t, program, keys("secret"), "--endpoint="+url, "--size=23MiB", "--part-size=5MiB",
		"s3://nobucket/x",
		"s3://bucket/runs", t.TempDir()+"/missing")
	if code != 1 || len(got) != 3 || !got[1].whole(size) ||
		!strings.Contains(got[0].Failure, "bucket does not exist") ||
		!strings.Contains(got[2].Failure, "no such file") {
		t.Errorf("exit code %d: %+v", code, got)
	}
	if got, code := storage(t, program, keys("secret"), "--endpoint="+url, "--size=1MiB", "s3://bucket"); code != 0 ||
		!got[0].whole(1<<20) {
		t.Errorf("without a prefix: exit code %d: %+v", code, got)
	}
	if got, code := storage(t, program, keys("wrong"), "--endpoint="+url, "--size=1MiB", "s3://bucket/x"); code != 1 ||
		!strings.Contains(got[0].Failure, "signature") {
		t.Errorf("wrong key: exit code %d: %+v", code, got)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}

	cmd := exec.CommandContext(t.Context(), program, "storage", "--endpoint="+url, "--size=8GiB", "--part-size=5MiB",
		"--streams=1", "s3://bucket/x")
	cmd.Env = append(os.Environ(), keys("secret")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(files(t, dir)) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no part arrived")
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run ended well")
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left after an interruption: %q", left)
	}
}

// faulty is a TLS server with one bucket, whose responses a test modifies.
type faulty struct {
	*httptest.Server
	backend gofakes3.Backend
	before  func(w http.ResponseWriter, r *http.Request) (handled bool)
	change  func(r *http.Request, body []byte) []byte
}

func newFaulty(t *testing.T) (*faulty, []string) {
	t.Helper()
	f := &faulty{backend: s3mem.New()}
	if err := f.backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	inner := gofakes3.New(f.backend).Server()
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.before != nil && f.before(w, r) {
			return
		}
		if f.change == nil || r.Header.Get("Range") == "" {
			inner.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r)
		maps.Copy(w.Header(), rec.Header())
		body := f.change(r, rec.Body.Bytes())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	}))
	t.Cleanup(f.Close)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	if err := os.WriteFile(roots, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return f, append(keys("secret"), "SSL_CERT_FILE="+roots)
}

// objects returns the keys in the bucket.
func (f *faulty) objects(t *testing.T) (list []string) {
	t.Helper()
	found, err := f.backend.ListBucket("bucket", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range found.Contents {
		list = append(list, o.Key)
	}
	return list
}

// TestFaults: a server's fault is the row's failure, and stored objects are removed.
func TestFaults(t *testing.T) {
	program := programs(t)
	var failures atomic.Int64
	for _, tc := range []struct {
		name   string
		before func(http.ResponseWriter, *http.Request) bool
		change func(*http.Request, []byte) []byte
		want   string // expected failure; empty: success
	}{
		{name: "healthy"},
		{name: "busy at first", before: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || failures.Add(1) > 1 {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			http.Error(w, "", http.StatusServiceUnavailable)
			return true
		}},
		{name: "corrupt", want: "are not what was written there", change: func(_ *http.Request, body []byte) []byte {
			body[len(body)/2]++
			return body
		}},
		{name: "short", want: "EOF", change: func(_ *http.Request, body []byte) []byte {
			return body[:len(body)/2]
		}},
		{name: "silent", want: "deadline exceeded", before: func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || r.URL.Query().Has("location") {
				return false
			}
			<-r.Context().Done()
			return true
		}},
		{name: "endless", want: "longer than 4 MiB", before: func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || !r.URL.Query().Has("uploads") {
				return false
			}
			_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>")
			for text := bytes.Repeat([]byte("a"), 1<<20); r.Context().Err() == nil; {
				if _, err := w.Write(text); err != nil {
					break
				}
			}
			return true
		}},
		{name: "sends elsewhere", want: "Temporary Redirect", // the redirect is not followed
			before: func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") == "" {
					return false
				}
				http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
				return true
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, env := newFaulty(t)
			f.before, f.change = tc.before, tc.change
			got, code := storage(t, program, env, "--endpoint="+f.URL, "--size=11MiB", "--part-size=5MiB", "--timeout=5s",
				"s3://bucket/x")
			if tc.want == "" && (code != 0 || !got[0].whole(11<<20)) || !strings.Contains(got[0].Failure, tc.want) {
				t.Errorf("exit code %d: %+v, want failure %q", code, got, tc.want)
			}
			if left := f.objects(t); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestInterruption: the upload is aborted after the server has answered the part in flight. Otherwise it might
// store the part after the abort.
func TestInterruption(t *testing.T) {
	program := programs(t)
	f, env := newFaulty(t)
	arrived := make(chan struct{}, 1)
	var answered, early atomic.Bool
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPut && r.URL.Query().Has("partNumber"):
			_, _ = io.Copy(io.Discard, r.Body)
			arrived <- struct{}{}
			time.Sleep(time.Second)
			answered.Store(true)
			return true
		case r.Method == http.MethodDelete && r.URL.Query().Has("uploadId"):
			early.Store(!answered.Load())
		}
		return false
	}
	cmd := exec.CommandContext(t.Context(), program, "storage", "--endpoint="+f.URL, "--size=11MiB", "--part-size=5MiB",
		"--streams=1", "s3://bucket/x")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted run ended well")
	}
	if !answered.Load() || early.Load() || len(f.objects(t)) > 0 {
		t.Errorf("part answered: %v, upload aborted before: %v, left: %q", answered.Load(), early.Load(), f.objects(t))
	}
}

// TestGoogle: gs:// uses application default credentials: the token of a service account on every request.
func TestGoogle(t *testing.T) {
	program := programs(t)
	f, env := newFaulty(t)
	var tokens, without atomic.Int64
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer the-token" {
			without.Add(1)
		}
		return false
	}
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tokens.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token": "the-token", "token_type": "Bearer", "expires_in": 3600}`)
	}))
	t.Cleanup(issuer.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "a@example.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": issuer.URL})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := storage(t, program, append(env, "GOOGLE_APPLICATION_CREDENTIALS="+file), "--endpoint="+f.URL, "--size=11MiB",
		"--part-size=5MiB", "gs://bucket/x")
	if code != 0 || !got[0].whole(11<<20) || tokens.Load() == 0 || without.Load() > 0 {
		t.Errorf("exit code %d: %+v; %d tokens, %d requests without", code, got, tokens.Load(), without.Load())
	}
	if left := f.objects(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
