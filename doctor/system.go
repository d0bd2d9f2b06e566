package doctor

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// SystemFacts is what was read of the system around the rails.
type SystemFacts struct {
	Ports     []PortFacts    `json:"ports"` // the rails, as far as the system's checks need them
	Memlock   MemlockFacts   `json:"memlock"`
	Devices   DeviceFacts    `json:"devices"`
	Verbs     VerbsFacts     `json:"verbs"`
	Versions  []VersionFact  `json:"versions"`
	GPUDirect GPUDirectFacts `json:"gpudirect"`
	QoS       []QoSFacts     `json:"qos"`
	Jobs      JobFacts       `json:"jobs"`
}

// PortFacts is one rail.
type PortFacts struct {
	Rail      string `json:"rail"`
	Device    string `json:"device"`
	Port      int    `json:"port"`
	Netdev    string `json:"netdev"`
	LinkLayer string `json:"link_layer"`
	Active    bool   `json:"active"`   // ports/<port>/state says ACTIVE
	Kind      string `json:"kind"`     // driver and type of adapter: rails of one kind should be set alike; empty for a software device
	Provider  string `json:"provider"` // what libibverbs calls its part for this device, for example mlx5; empty when not known
}

// Bounds on what is kept of a node, so that its facts stay far below a megabyte.
const (
	maxPorts = 128 // rails, and RDMA ports that are none
	maxText  = 256 // bytes of a value that somebody else wrote
)

// systemLanes are where what may hang is read. They are kept from one reading to
// the next: what hangs then costs one goroutine for ever, not one each time. The
// zero value is ready to use.
type systemLanes struct {
	parts   lane.Group[part]
	gpus    lane.Group[string]
	qos     lane.Group[qosAnswer]
	states  lane.Group[bool]
	environ lane.Group[bool]
	reading sync.Map // PIDs whose environment is being read: one that hangs is not tried again
}

// system reads the facts. What asks the running kernel by another way than a
// file is a function, nil on a captured tree.
type system struct {
	o     Options
	live  bool   // o.Sysfs is the running kernel's
	root  string // this process's own root: devices and libraries are those that it can open
	rails []rail.Rail
	lanes *systemLanes

	open  func(path string) error                    // opens a device to read and write, and closes it
	pfc   func(netdev string) (uint8, error)         // priorities with PFC, a bit each
	pause func(netdev string) (rx, tx bool, _ error) // global pause frames
	read  func(path string, buf []byte) (int, error) // the start of a file; never nil
}

// gatherSystem reads what is around the rails. The second value is what could
// not be read, and what to do about it. It takes no longer than the budget in o
// or until ctx ends.
func gatherSystem(ctx context.Context, o Options, rails []rail.Rail, lanes *systemLanes) (SystemFacts, []string) {
	s := &system{o: o, rails: rails, lanes: lanes, live: sysfs.Live(o.Sysfs), root: o.Rootfs, read: readStart}
	if s.live {
		s.root = "/"
		s.open, s.pfc, s.pause = openDevice, kernelPFC, kernelPause
	}
	return s.gather(ctx)
}

// part is what one of the readers found: how it goes into the facts, and what
// it could not read.
type part struct {
	put    func(*SystemFacts)
	unread []string
}

// gather runs all readers side by side, so that one that hangs costs only
// itself.
func (s *system) gather(ctx context.Context) (facts SystemFacts, unread []string) {
	budget := cmp.Or(s.o.Budget, defaultBudget)
	if end, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(end))
	}
	readers := []struct {
		what string
		read func(context.Context) part
	}{
		{"the ports", s.readPorts},
		{"limits on locked memory", s.readMemlock},
		{"RDMA devices", s.readDevices},
		{"libibverbs and its providers", s.readVerbs},
		{"versions of libraries", s.readVersions},
		{"GPUDirect", s.readGPUDirect},
		{"PFC and DCQCN", s.readQoS},
		{"environments of processes", s.readJobs},
	}
	byName, names := map[string]func(context.Context) part{}, []string{}
	for _, r := range readers {
		byName[r.what], names = r.read, append(names, r.what)
	}
	inner, cancel := context.WithTimeout(ctx, budget*9/10) // readers that can end by themselves do, before they are given up
	defer cancel()
	for _, res := range s.lanes.parts.Run(budget, names, func(name string) part { return byName[name](inner) }) {
		if res.State != lane.Done {
			unread = append(unread, fmt.Sprintf("%s: %v; look into dmesg for what hangs, and run doctor again", res.Key, firstLine(res.Err)))
			continue
		}
		res.Value.put(&facts)
		unread = append(unread, res.Value.unread...)
	}
	return facts, unread
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return line
}

// readPorts says of the rails what the checks of the system look at. That a
// state was not to be had, and why, the reader of the rails says.
func (s *system) readPorts(ctx context.Context) part {
	var ports []PortFacts
	var keys []string
	dirs := map[string]string{}
	for _, r := range s.rails[:min(len(s.rails), maxPorts)] {
		p := PortFacts{Rail: r.Name, Device: r.Device, Port: r.Port, Netdev: r.Netdev, LinkLayer: r.LinkLayer, Provider: providerOf(r)}
		if !r.Software {
			p.Kind = strings.Join(strings.Fields(r.Driver+" "+r.HCAType+" "+r.BoardID), " ")
		}
		key := p.name()
		ports, keys, dirs[key] = append(ports, p), append(keys, key), filepath.Join(r.Dir, "ports", strconv.Itoa(r.Port))
	}
	for i, res := range s.lanes.states.Run(remaining(ctx), keys, func(key string) bool {
		state, err := sysfs.ReadString(dirs[key], "state")
		return err == nil && strings.HasSuffix(state, "ACTIVE")
	}) {
		ports[i].Active = res.State == lane.Done && res.Value
	}
	return part{put: func(f *SystemFacts) { f.Ports = ports }}
}

// name is how people call the rail.
func (p PortFacts) name() string {
	r := Rail{Name: p.Rail, Device: p.Device, Port: p.Port, Netdev: p.Netdev}
	return r.String()
}

// onlyEFA reports whether all rails are EFA: that has no connection manager, and
// NCCL reaches it by the plugin of libfabric, for which nothing that is said to
// NCCL's own InfiniBand transport counts. It is true of no rails, too.
func onlyEFA(f *Facts) bool {
	return !slices.ContainsFunc(f.System.Ports, func(p PortFacts) bool { return p.Provider != "efa" })
}

// railsOf is how people call several rails.
func railsOf(ports []PortFacts) string {
	if len(ports) == 1 {
		return ports[0].name()
	}
	var rails, devices []string
	for _, p := range ports {
		rails, devices = append(rails, p.Rail), append(devices, p.Device)
	}
	return fmt.Sprintf("rails %s (%s)", listed(rails), listed(devices))
}

// listed writes a list that may be long.
func listed(names []string) string {
	const most = 16
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return enumerate(names)
}

// own returns a path below this process's own root.
func (s *system) own(path string) string { return filepath.Join(s.root, path) }

// openDevice opens a device node to read and write, and closes it: what a
// program would do first. No RDMA driver does more at open than note who came.
func openDevice(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// kernelPause asks whether an interface sends and heeds global pause frames.
func kernelPause(netdev string) (rx, tx bool, err error) {
	socket, err := ethtool.Open()
	if err != nil {
		return false, false, err
	}
	defer socket.Close() //nolint:errcheck // nothing was written to it
	return readPause(socket.Ioctl, netdev)
}

// systemChecks are the checks of the system around the rails. None of them
// finds anything on a machine without rails.
func systemChecks() []Check {
	list := []Check{
		{ID: "memlock", About: "this process may lock too little memory to register any for RDMA", Run: checkMemlock},
		{ID: "uverbs_module", About: "the kernel module ib_uverbs is not loaded", Run: checkUverbsModule},
		{ID: "uverbs_missing", About: "`/dev/infiniband/uverbsN` is missing though the RDMA device is there", Run: checkUverbsMissing},
		{ID: "uverbs_permission", About: "the permissions of `/dev/infiniband/uverbsN` refuse this user", Run: checkUverbsPermission},
		{ID: "uverbs_device_rules", About: "the device rules of a container or a service refuse `/dev/infiniband/uverbsN`", Run: checkUverbsRules},
		{ID: "rdma_cm", About: "`/dev/infiniband/rdma_cm` is missing: programs that connect by rdmacm cannot", Run: checkRDMACM},
		{ID: "libibverbs", About: "`libibverbs.so.1` is not installed", Run: checkLibibverbs},
		{ID: "provider", About: "libibverbs has no provider for the driver of a rail, or none that its configuration names", Run: checkProvider},
		{ID: "gpudirect", About: "GPUs and rails, but neither peer memory nor dma-buf: transfers are staged through host memory", Run: checkGPUDirect},
		{ID: "peermem_legacy", About: "GPUDirect by the module nv_peer_mem, which nobody maintains, where the driver has its own", Run: checkPeermemLegacy},
		{ID: "pfc", About: "rails of one kind differ in PFC, trust or global pause", Run: checkQoS(qosPFC)},
		{ID: "dcqcn", About: "rails of one kind differ in DCQCN: priorities of notification and reaction point, parameters", Run: checkQoS(qosDCQCN)},
		{ID: "traffic_class", About: "rails of one kind differ in the traffic class of what they send", Run: checkQoS(qosClass)},
	}
	for _, c := range jobChecks() {
		list = append(list, Check{ID: c.id, About: c.about, Run: c.run})
	}
	return typed(list)
}

// systemPeerChecks are the checks that compare the systems of two nodes.
func systemPeerChecks() []PeerCheck {
	checks := []PeerCheck{
		{ID: "peer_pfc", About: "PFC, trust or global pause are unlike the peer's", Run: comparePeerQoS(qosPFC)},
		{ID: "peer_dcqcn", About: "DCQCN is unlike the peer's", Run: comparePeerQoS(qosDCQCN)},
		{ID: "peer_traffic_class", About: "the traffic class of what rails send is unlike the peer's", Run: comparePeerQoS(qosClass)},
	}
	for _, c := range components() {
		checks = append(checks, PeerCheck{ID: "peer_" + c.id, About: c.about, Run: c.compare})
	}
	return typedPeer(checks)
}
