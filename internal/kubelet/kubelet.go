// Package kubelet finds the names of pods on this node: by container and by pod
// UID, from the kubelet's log directories, and by device, from its pod-resources
// socket. The Kubernetes API is not used, and neither source has to exist.
package kubelet

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Where the kubelet keeps things, below the host's root.
const (
	Socket        = "var/lib/kubelet/pod-resources/kubelet.sock"
	containerLogs = "var/log/containers"
	podLogs       = "var/log/pods"
)

// maxEntries bounds what is read of a directory; a kubelet runs 110 pods by
// default.
const maxEntries = 8192

// Name is what a container is called. Container is empty where only the pod is
// known.
type Name struct {
	Namespace, Pod, Container string
}

// Names are the containers and pods that the kubelet has logs of. The logs of
// what has ended stay for a while.
type Names struct {
	Containers map[string]Name // by the runtime's ID
	Pods       map[string]Name // by UID
}

// ReadNames reads the kubelet's directories below rootfs. Where there is no
// kubelet both maps are empty and there is no error.
//
// Source: pkg/kubelet/kuberuntime/legacy.go (NAME_NAMESPACE_CONTAINER-ID.log),
// pkg/kubelet/kuberuntime/helpers.go BuildPodLogsDirectory (NAMESPACE_NAME_UID).
func ReadNames(rootfs string) (Names, error) {
	n := Names{Containers: map[string]Name{}, Pods: map[string]Name{}}
	err1 := list(filepath.Join(rootfs, containerLogs), func(entry string) {
		if id, name, ok := parseContainerLog(entry); ok {
			n.Containers[id] = name
		}
	})
	err2 := list(filepath.Join(rootfs, podLogs), func(entry string) {
		if uid, name, ok := parsePodLogs(entry); ok {
			n.Pods[uid] = name
		}
	})
	return n, errors.Join(err1, err2)
}

// parseContainerLog reads train-0_default_trainer-<id>.log: the names of pods,
// namespaces and containers have no underscore.
func parseContainerLog(entry string) (id string, name Name, ok bool) {
	base, ok := strings.CutSuffix(entry, ".log")
	dash := strings.LastIndexByte(base, '-')
	if !ok || dash < 0 {
		return "", Name{}, false
	}
	id = base[dash+1:]
	parts := strings.Split(base[:dash], "_")
	if len(parts) != 3 || len(id) != 64 || !plausible(parts...) {
		return "", Name{}, false
	}
	return id, Name{Namespace: parts[1], Pod: parts[0], Container: parts[2]}, true
}

// parsePodLogs reads default_train-0_<uid>.
func parsePodLogs(entry string) (uid string, name Name, ok bool) {
	parts := strings.Split(entry, "_")
	if len(parts) != 3 || !plausible(parts...) {
		return "", Name{}, false
	}
	return parts[2], Name{Namespace: parts[0], Pod: parts[1]}, true
}

// plausible reports whether all are names as Kubernetes has them (RFC 1123), so
// that what else lies in the directory never becomes a label.
func plausible(names ...string) bool {
	for _, n := range names {
		if n == "" || len(n) > 253 {
			return false
		}
		for _, c := range []byte(n) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
				return false
			}
		}
	}
	return true
}

// list calls fn for every entry of a directory, which need not be there.
func list(path string, fn func(string)) error {
	d, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return sysfs.Fail(path, err)
	}
	defer d.Close()
	entries, err := d.Readdirnames(maxEntries)
	for _, e := range entries {
		fn(e)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return sysfs.Fail(path, err)
	case len(entries) == maxEntries:
		return &sysfs.Error{Path: path, Reason: sysfs.ReasonTooLarge,
			Err: errors.New("more entries than a kubelet has pods")}
	}
	return nil
}
