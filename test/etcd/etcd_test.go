// Package etcd tests with a real etcd the checks of nixlbench PEER --etcd before it runs anything.
package etcd

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/railscope/railscope/bench/nixl"
)

// start starts an etcd with one member on free ports.
func start(t *testing.T) *embed.Etcd {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs = t.TempDir(), "error", []string{filepath.Join(t.TempDir(), "log")}
	free := func() []url.URL { // its JSON gateway connects to the configured port
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		return []url.URL{{Scheme: "http", Host: l.Addr().String()}}
	}
	cfg.ListenClientUrls = free()
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = free()
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready")
	}
	return e
}

// TestEtcd: health and version, keys of an earlier run of the same group, and an etcd that has stopped.
func TestEtcd(t *testing.T) {
	e := start(t)
	address := "http://" + e.Clients[0].Addr().String()
	settings := nixl.Settings{Etcd: address, Group: "railscope"}
	check := func(stale int64) {
		t.Helper()
		got, err := nixl.CheckEtcd(t.Context(), settings)
		if err != nil || got.Stale != stale || !strings.HasPrefix(got.Version, "3.7.") {
			t.Errorf("%+v, %v, want %d keys", got, err, stale)
		}
	}
	check(0)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, key := range []string{"xferbench/railscope/size", "xferbench/railscope/rank/0", "xferbench/railscope2/size",
		"xferbench/other/size", "zzz"} {
		if _, err := client.Put(t.Context(), key, "1"); err != nil {
			t.Fatal(err)
		}
	}
	check(2)
	run := func() string {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/railscope", "nixlbench", "127.0.0.1", "--etcd="+address,
			"--nixlbench="+standIn(t))
		cmd.Dir = filepath.Join("..", "..")
		out, err := cmd.CombinedOutput()
		t.Logf("%v\n%s", err, out)
		return string(out)
	}
	if said := run(); !strings.Contains(said, "2 keys of an earlier run are left in etcd") ||
		!strings.Contains(said, settings.RemoveKeys()) {
		t.Errorf("it says\n%s", said)
	}
	if _, err := client.Delete(t.Context(), "xferbench/railscope/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	check(0)
	if said := run(); !strings.Contains(said, "etcd 3.7.") || !strings.Contains(said, "is healthy") {
		t.Errorf("it says\n%s", said)
	}
	_ = client.Close()
	e.Close()
	if _, err := nixl.CheckEtcd(t.Context(), settings); err == nil ||
		!strings.Contains(err.Error(), "does not answer") {
		t.Errorf("of one that has gone: %v", err)
	}
}

// standIn returns a program in place of nixlbench that fails at once.
func standIn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nixlbench")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'no device' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
