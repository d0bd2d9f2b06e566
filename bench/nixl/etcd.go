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

// Etcd is the state of an etcd, by its JSON gateway.
type Etcd struct {
	Version string
	Stale   int64 // keys of the group, of an earlier run
}

const (
	etcdTime = 5 * time.Second
	maxEtcd  = 1 << 20 // bytes of an answer
)

// keysOf is the prefix of the keys of a group (etcd_rt.cpp).
func keysOf(group string) string { return "xferbench/" + group + "/" }

// RemoveKeys is the command that removes what earlier runs left.
func (s Settings) RemoveKeys() string {
	return fmt.Sprintf("ETCDCTL_API=3 etcdctl --endpoints=%s del %s --prefix", s.Etcd, keysOf(s.Group))
}

// CheckEtcd asks whether etcd is healthy, for its version, and for keys of an earlier run.
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
		Count json.Number `json:"count"` // absent: none
	}
	err = ask(ctx, http.MethodPost, base+"/v3/kv/range", map[string]any{
		"key": base64.StdEncoding.EncodeToString(begin), "range_end": base64.StdEncoding.EncodeToString(end),
		"count_only": true}, &found)
	e.Stale, _ = found.Count.Int64() // none: 0
	return e, err
}

func ask(ctx context.Context, method, address string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTime)
	defer cancel()
	text, _ := json.Marshal(body) // cannot fail: only texts and a bool
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
