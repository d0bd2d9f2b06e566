package process

import (
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/kubelet"
	"github.com/railscope/railscope/internal/lane"
	labeltext "github.com/railscope/railscope/internal/text"
)

// namesFresh is the time between two reads of the names of pods.
const namesFresh = 10 * time.Second

// podNames names pods and containers where it can: else a pod has its UID, a container the beginning of its ID.
type podNames struct {
	rootfs string
	lanes  lane.Group[podsKnown]
	last   podsKnown
	read   time.Time
}

// podsKnown is what the kubelet's logs show.
type podsKnown struct {
	kubelet.Names
	err error // why not all logs could be read
}

// known returns the names, read first, within budget, if an owner has none.
func (n *podNames) known(budget time.Duration, holders map[uint32]*holder) (podsKnown, error) {
	if !n.last.complete(holders) && time.Since(n.read) >= namesFresh {
		res := n.lanes.Run(budget, []string{"kubelet"}, func(string) podsKnown {
			names, err := kubelet.ReadNames(n.rootfs)
			return podsKnown{names, err}
		})[0]
		if res.State != lane.Done {
			return n.last, collector.LaneFault("kubelet", res.State, res.Err)
		}
		n.last, n.read = res.Value, time.Now()
	}
	if n.last.err == nil || n.last.complete(holders) { // what failed is not needed
		return n.last, nil
	}
	return n.last, unexpected("kubelet", n.last.err)
}

// complete reports whether every pod's container among holders has a name.
func (k podsKnown) complete(holders map[uint32]*holder) bool {
	for _, o := range holders {
		if o != nil && o.cgroup.Pod != "" && k.Containers[o.cgroup.Container].Pod == "" {
			return false
		}
	}
	return true
}

// label sets the pod and the container of the owners as they are exported.
func (k podsKnown) label(owners map[uint32]*holder) {
	for _, o := range owners {
		if o == nil {
			continue
		}
		c := o.cgroup
		name, known := k.Containers[c.Container]
		if !known {
			name = k.Pods[c.Pod]
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
