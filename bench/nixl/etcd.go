package nixl

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Etcd is the state of an etcd, read through its JSON gateway.
type Etcd struct {
	Version string
	Stale   int64 // keys of the group from an earlier run
}

const (
	etcdTime = 5 * time.Second
	maxEtcd  = 1 << 20 // bytes of a response
)

// keysOf returns the prefix of a group's keys (etcd_rt.cpp).
func keysOf(group string) string { return "xferbench/" + group + "/" }

// RemoveKeys returns the command that removes keys of earlier runs.
func (s Settings) RemoveKeys() string {
	return fmt.Sprintf("ETCDCTL_API=3 etcdctl --endpoints=%s del %s --prefix", s.Etcd, keysOf(s.Group))
}

// CheckEtcd queries the health and version of etcd, and keys of an earlier run.
func CheckEtcd(ctx context.Context, s Settings) (e Etcd, err error) {
	u, err := url.Parse(s.Etcd)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return e, errors.New("the etcd client takes http://HOST:PORT or https://HOST:PORT alone")
	}
	base := strings.TrimRight(s.Etcd, "/")
	var health struct {
		Health string `json:"health"`
		Reason string `json:"reason"`
	}
	if err := ask(ctx, http.MethodGet, base+"/health", nil, &health); err != nil {
		return e, err
	}
	if health.Health != "true" {
		return e, fmt.Errorf("etcd is not healthy: %s", health.Reason)
	}
	var version struct {
		Server string `json:"etcdserver"`
	}
	if err := ask(ctx, http.MethodGet, base+"/version", nil, &version); err != nil {
		return e, err
	}
	e.Version = version.Server
	begin := []byte(keysOf(s.Group))
	end := bytes.Clone(begin)
	end[len(end)-1]++ // the first key beyond the prefix
	var found struct {
		Count json.Number `json:"count"` // absent if there are none
	}
	err = ask(ctx, http.MethodPost, base+"/v3/kv/range", map[string]any{
		"key": base64.StdEncoding.EncodeToString(begin), "range_end": base64.StdEncoding.EncodeToString(end),
		"count_only": true}, &found)
	e.Stale, _ = found.Count.Int64() // 0 if absent
	return e, err
}

func ask(ctx context.Context, method, address string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTime)
	defer cancel()
	text, _ := json.Marshal(body) // only texts and a bool: cannot fail
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, maxEtcd))
	if err == nil && res.StatusCode != http.StatusOK && !strings.HasSuffix(address, "/health") {
		err = errors.New(res.Status)
	}
	if err == nil {
		err = json.Unmarshal(got, answer)
	}
	if err != nil {
		return fmt.Errorf("%s is no etcd: %w", address, err)
	}
	return nil
}
