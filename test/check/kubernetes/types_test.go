package kubernetes

import (
	"bufio"
	"iter"
	"maps"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// newObject returns an empty object of a type, or nil for a type that none of our files may contain, such as a
// role.
func newObject(what string) any {
	switch what {
	case "v1 Namespace":
		return &core.Namespace{}
	case "v1 ServiceAccount":
		return &core.ServiceAccount{}
	case "v1 ConfigMap":
		return &core.ConfigMap{}
	case "v1 Secret":
		return &core.Secret{}
	case "v1 Service":
		return &core.Service{}
	case "apps/v1 DaemonSet":
		return &apps.DaemonSet{}
	case "monitoring.coreos.com/v1 PodMonitor":
		return &monitoring.PodMonitor{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &monitoring.ServiceMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		return &monitoring.PrometheusRule{}
	}
	return nil
}

// all returns the objects of one type.
func all[T any](list []object) (found []*T) {
	for _, o := range list {
		if v, ok := o.value.(*T); ok {
			found = append(found, v)
		}
	}
	return found
}

// only returns the single object of a type.
func only[T any](t *testing.T, list []object) *T {
	t.Helper()
	found := all[T](list)
	if len(found) != 1 {
		t.Fatalf("%d of %T", len(found), new(T))
	}
	return found[0]
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func newReader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
