// Package kubelet finds the names of this node's pods by container ID and by pod UID. It uses the names of
// directories and files in the kubelet's logs, which may be missing, and not the Kubernetes API.
package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

const (
	containerLogs = "var/log/containers"
	podLogs       = "var/log/pods"
)

// Name is the name of a container, or only of a pod if Container is empty.
type Name struct {
	Namespace, Pod, Container string
}

// Names are the containers and pods that have logs, including some that have ended.
type Names struct {
	Containers map[string]Name // keyed by the runtime's container ID
	Pods       map[string]Name // keyed by UID
}

// ReadNames reads the kubelet's directories below rootfs. Without a kubelet both maps are empty, and the error is nil.
//
// Source: pkg/kubelet/kuberuntime/legacy.go (NAME_NAMESPACE_CONTAINER-ID.log), pkg/kubelet/kuberuntime/helpers.go
// BuildPodLogsDirectory (NAMESPACE_NAME_UID).
func ReadNames(rootfs string) (Names, error) {
	n := Names{Containers: map[string]Name{}, Pods: map[string]Name{}}
	containers, err1 := list(filepath.Join(rootfs, containerLogs))
	for _, entry := range containers {
		if id, name, ok := parseContainerLog(entry.Name); ok {
			n.Containers[id] = name
		}
	}
	pods, err2 := list(filepath.Join(rootfs, podLogs))
	for _, entry := range pods {
		// Names of namespaces and pods have no underscore.
		if parts := strings.Split(entry.Name, "_"); len(parts) == 3 && plausible(parts...) {
			n.Pods[parts[2]] = Name{Namespace: parts[0], Pod: parts[1]}
		}
	}
	return n, errors.Join(err1, err2)
}

// parseContainerLog parses train-0_default_trainer-<id>.log.
func parseContainerLog(entry string) (id string, name Name, ok bool) {
	base, isLog := strings.CutSuffix(entry, ".log")
	dash := strings.LastIndexByte(base, '-')
	parts := strings.Split(base[:max(dash, 0)], "_")
	if !isLog || len(parts) != 3 || len(base[dash+1:]) != 64 || !plausible(parts...) {
		return "", Name{}, false
	}
	return base[dash+1:], Name{Namespace: parts[1], Pod: parts[0], Container: parts[2]}, true
}

// plausible reports whether all names are valid in Kubernetes (RFC 1123), so that no other file becomes a label.
func plausible(names ...string) bool {
	return !slices.ContainsFunc(names, func(n string) bool {
		return n == "" || len(n) > 253 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-.") != ""
	})
}

func list(path string) ([]sysfs.Entry, error) {
	entries, err := sysfs.List(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return entries, err
}
