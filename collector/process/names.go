package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
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

// podNames names pods and containers where it can: else a pod has its UID, a container the beginning of its ID.
type podNames struct {
	rootfs string
	lanes  lane.Group[struct{}]
	answer atomic.Pointer[podsKnown] // written in the lane, so that a slow answer counts, too; nil: none yet
}

type podsKnown struct {
	kubelet.Names
	devices []kubelet.Device
	read    time.Time
	logs    error // why not all logs could be read
	socket  error // why the socket did not answer the last call
}

func (n *podNames) last() *podsKnown { return cmp.Or(n.answer.Load(), &podsKnown{}) }

// known returns the names, read first if an owner has none. It waits for budget; later answers are for later reads.
func (n *podNames) known(budget time.Duration, holders map[uint32]*holder) (*podsKnown, error) {
	last := n.last()
	var stuck error
	if !last.complete(holders) && time.Since(last.read) >= namesFresh {
		res := n.lanes.Run(budget, []string{"kubelet"}, func(string) struct{} {
			n.refresh(holders)
			return struct{}{}
		})[0]
		if res.State == lane.Died || res.State == lane.Busy && time.Since(res.Since) > namesTime {
			stuck = collector.LaneFault("kubelet", res.State, res.Err)
		}
		last = n.last()
	}
	if last.complete(holders) {
		return last, nil // whatever failed is not needed
	}
	return last, errors.Join(last.logs, last.socket, stuck)
}

// complete reports whether every pod's container among holders has a name.
func (k *podsKnown) complete(holders map[uint32]*holder) bool {
	for _, o := range holders {
		if o != nil && o.cgroup.Pod != "" && k.Containers[o.cgroup.Container].Pod == "" {
			return false
		}
	}
	return true
}

// refresh reads the kubelet's directories. If they do not name all, it calls the socket, which needs root.
func (n *podNames) refresh(holders map[uint32]*holder) {
	k := *n.last()
	var err error
	k.Names, err = kubelet.ReadNames(n.rootfs)
	k.logs = kubeletFault(err)
	if k.complete(holders) {
		k.devices, k.socket, k.read = nil, nil, time.Now()
		n.answer.Store(&k)
		return
	}
	logs := k
	n.answer.Store(&logs)
	ctx, cancel := context.WithTimeout(context.Background(), namesTime)
	defer cancel()
	k.devices, err = kubelet.Devices(ctx, filepath.Join(n.rootfs, kubelet.Socket))
	k.socket, k.read = kubeletFault(err), time.Now()
	n.answer.Store(&k)
}

// kubeletFault is the fault of one source of names; nil if there is no kubelet.
func kubeletFault(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return unexpected("kubelet", err)
}

// byDevice names the pods that hold a device which the kubelet gave to one pod only, and which only they hold. The
// socket does not report UIDs, so this leads from a process to its pod where the kubelet's logs cannot be read.
func (k *podsKnown) byDevice(holdings []*gpuHolding, owners map[uint32]*holder) map[string]kubelet.Name {
	given := map[string]kubelet.Name{} // by device
	for _, d := range k.devices {
		id, _, _ := strings.Cut(d.ID, "::") // a replica, where a GPU is shared by time
		addName(given, id, d.Name)
	}
	held := map[string]string{} // by device: the pod that holds it; empty for several
	for _, h := range holdings {
		if o := owners[h.pid]; o != nil && o.cgroup.Pod != "" {
			if pod, known := held[h.uuid]; known && pod != o.cgroup.Pod {
				held[h.uuid] = ""
			} else {
				held[h.uuid] = o.cgroup.Pod
			}
		}
	}
	named := map[string]kubelet.Name{} // by pod
	for uuid, pod := range held {
		if name := given[uuid]; name.Pod != "" && pod != "" {
			addName(named, pod, name)
		}
	}
	return named
}

// addName sets the name of a key, or what it has in common with the current name: the whole name, the pod, or nothing.
func addName(names map[string]kubelet.Name, key string, name kubelet.Name) {
	if before, known := names[key]; known && before != name {
		if before.Namespace != name.Namespace || before.Pod != name.Pod {
			name = kubelet.Name{}
		}
		name.Container = ""
	}
	names[key] = name
}

// label sets the pod and the container of the owners as they are exported.
func (k *podsKnown) label(holdings []*gpuHolding, owners map[uint32]*holder) {
	byDevice := k.byDevice(holdings, owners)
	for _, o := range owners {
		if o == nil {
			continue
		}
		c := o.cgroup
		name, known := k.Containers[c.Container]
		if !known {
			name = k.Pods[c.Pod]
		}
		if name.Pod == "" {
			name = byDevice[c.Pod]
		}
		o.pod, o.container = c.Pod, labeltext.Label(name.Container)
		if c.Pod != "" && name.Pod != "" {
			o.pod = labeltext.Label(name.Namespace) + "/" + labeltext.Label(name.Pod)
		}
		switch {
		case o.container != "":
		case c.Container != "":
			o.container = c.Container[:12]
		case c.Slurm != "":
			o.container = "slurm-" + c.Slurm
		}
	}
}
