package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/kubelet"
	"github.com/railscope/railscope/internal/lane"
	labeltext "github.com/railscope/railscope/internal/text"
)

const (
	namesFresh = 10 * time.Second // between two reads of the names of pods
	namesTime  = 5 * time.Second  // for the kubelet to answer; a scrape does not wait so long
)

// podNames names pods and containers. Nothing of it is needed: without a name a
// pod has its UID, and a container the beginning of its ID.
type podNames struct {
	rootfs string
	client *kubelet.Client
	lanes  lane.Group[struct{}]
	last   atomic.Pointer[podsKnown] // written in the lane, so that a slow answer counts, too
}

// podsKnown is the last answer of the kubelet.
type podsKnown struct {
	kubelet.Names
	devices []kubelet.Device
	read    time.Time
	logs    error // why not all logs could be read
	socket  error // why the socket did not answer when it was ownerQuery last
}

// faults are the faults of a read.
func (k *podsKnown) faults() (list []error) {
	for _, err := range []error{k.logs, k.socket} {
		if err != nil {
			list = append(list, err)
		}
	}
	return list
}

func newPodNames(rootfs string) *podNames {
	n := &podNames{rootfs: rootfs, client: kubelet.NewClient(filepath.Join(rootfs, kubelet.Socket))}
	n.last.Store(&podsKnown{})
	return n
}

// known returns the names, after reading them if an owner has none yet. It
// waits for budget at most; what comes later is there the next time.
func (n *podNames) known(budget time.Duration, holders map[uint32]*holder) (*podsKnown, []error) {
	last := n.last.Load()
	if all(last.Names, holders) {
		return last, nil // what failed is not needed, or not any more
	}
	if time.Since(last.read) < namesFresh {
		return last, last.faults()
	}
	res := n.lanes.Run(budget, []string{"kubelet"}, func(string) struct{} {
		n.refresh(holders)
		return struct{}{}
	})[0]
	if last = n.last.Load(); all(last.Names, holders) {
		return last, nil
	}
	if res.State == lane.Died || res.State == lane.Busy && time.Since(res.Since) > namesTime {
		return last, append(last.faults(), collector.LaneFault("kubelet", res.State, res.Err))
	}
	return last, last.faults()
}

// all reports whether every pod's container among holders has a name.
func all(names kubelet.Names, holders map[uint32]*holder) bool {
	for _, o := range holders {
		if _, named := names.Containers[o.cgroup.Container]; o.cgroup.Pod != "" && !named {
			return false
		}
	}
	return true
}

// look asks the kubelet's directories, and where they do not name all, its
// socket: that takes longer, and is root's.
func (n *podNames) refresh(holders map[uint32]*holder) {
	k := *n.last.Load()
	var err error
	k.Names, err = kubelet.ReadNames(n.rootfs)
	k.logs = kubeletFault(err)
	if all(k.Names, holders) {
		k.devices, k.socket, k.read = nil, nil, time.Now()
		n.last.Store(&k)
		return
	}
	logs := k
	n.last.Store(&logs)
	ctx, cancel := context.WithTimeout(context.Background(), namesTime)
	defer cancel()
	k.devices, err = n.client.Devices(ctx)
	k.socket, k.read = kubeletFault(err), time.Now()
	n.last.Store(&k)
}

// kubeletFault is the fault of one way to the names; that it is not there is none.
func kubeletFault(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return unexpected("kubelet", err)
}

// byDevice names the pods that hold a device which the kubelet gave to one pod
// only, and which only they hold. The socket knows no UIDs, so this is the way
// from a process to its pod where the kubelet's logs cannot be seen.
func (k *podsKnown) byDevice(holdings []gpuHolding, owners map[uint32]*holder) map[string]kubelet.Name {
	if len(k.devices) == 0 {
		return nil
	}
	given := map[string][]kubelet.Name{} // by device
	for _, d := range k.devices {
		id, _, _ := strings.Cut(d.ID, "::") // a replica, where a GPU is shared by time
		if !slices.Contains(given[id], d.Name) {
			given[id] = append(given[id], d.Name)
		}
	}
	held := map[string]string{} // by device: the pod that holds it; ? for several
	for _, h := range holdings {
		if o := owners[h.pid]; o != nil && o.cgroup.Pod != "" {
			if pod, known := held[h.uuid]; known && pod != o.cgroup.Pod {
				held[h.uuid] = "?"
			} else {
				held[h.uuid] = o.cgroup.Pod
			}
		}
	}
	named := map[string]kubelet.Name{}
	for uuid, pod := range held {
		if len(given[uuid]) == 0 {
			continue
		}
		name := given[uuid][0]
		for _, other := range given[uuid][1:] {
			if other.Namespace != name.Namespace || other.Pod != name.Pod {
				pod = "?"
			}
			name.Container = ""
		}
		if before, known := named[pod]; known && before != name {
			if before.Namespace != name.Namespace || before.Pod != name.Pod {
				name = kubelet.Name{} // two devices, two pods: then neither
			}
			name.Container = ""
		}
		named[pod] = name
	}
	delete(named, "?")
	return named
}

// label returns the pod and the container of an owner as they are exported.
func (k *podsKnown) label(o *holder, byDevice map[string]kubelet.Name) (pod, container string) {
	c := o.cgroup
	name, known := k.Containers[c.Container]
	if !known {
		name = k.Pods[c.Pod]
	}
	if name.Pod == "" {
		name = byDevice[c.Pod]
	}
	pod, container = c.Pod, labeltext.Label(name.Container)
	if c.Pod != "" && name.Pod != "" {
		pod = labeltext.Label(name.Namespace) + "/" + labeltext.Label(name.Pod)
	}
	switch {
	case container != "":
	case c.Container != "":
		container = c.Container[:12]
	case c.Slurm != "":
		container = "slurm-" + c.Slurm
	}
	return pod, container
}
