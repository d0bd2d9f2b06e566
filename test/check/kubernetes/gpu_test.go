package kubernetes

import (
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// TestGPUs: NVIDIA's GPUs are read through their runtime class, AMD's without one, and no installation refers to a
// runtime class that its nodes may lack.
func TestGPUs(t *testing.T) {
	type gpus struct {
		read  bool
		class string
	}
	want := map[string]gpus{
		"helm/gpu": {true, "nvidia"}, "helm/everything": {true, "nvidia"},
		"kustomize/overlays/everything": {true, "nvidia"},
		"helm/gpu-amd":                  {true, ""}, "kustomize/overlays/gpu-amd": {true, ""},
	}
	all := rendered(t)
	for from := range want {
		if all[from] == nil {
			t.Errorf("no installation %s", from)
		}
	}
	for from, list := range all {
		pod := only[apps.DaemonSet](t, list).Spec.Template.Spec
		c := pod.Containers[0]
		got := gpus{read: !slices.Contains(c.Env, core.EnvVar{Name: "RAILSCOPE_SOURCE_GPU", Value: "false"})}
		if pod.RuntimeClassName != nil {
			got.class = *pod.RuntimeClassName
		}
		if got != want[from] {
			t.Errorf("%s: %+v, want %+v", from, got, want[from])
		}
		for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"} {
			if hasEnv(c, name) != (got.class != "") {
				t.Errorf("%s: %s with the runtime class %q", from, name, got.class)
			}
		}
	}
}
