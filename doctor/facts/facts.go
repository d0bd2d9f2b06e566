// Package facts reads everything that doctor's checks judge: the rails of a node, the system around them, and what jobs
// configure for them. A [Gatherer] reads the facts of this node; a peer's arrive as JSON over the probe's control
// channel ([Parse]). This package judges nothing.
package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/verbsabi"
)

// Version is the version of the JSON form of [Facts].
const Version = 3

// Facts holds what was read of one node. A fact that could not be read is zero and listed in Unread. The tag max bounds
// a peer's lists.
type Facts struct {
	Version int    `json:"version"` // version of the JSON form; peers with another one are not compared
	Node    string `json:"node"`
	Network `json:"rails"`
	System  `json:"system"`
	Unread  []string `json:"unread"` // facts that could not be read, with reason and fix
	Silent  []string `json:"-"`      // readers that did not answer in time, or failed: their facts are missing
	Live    *Live    `json:"-"`      // nil if no railscope runs
}

// Readers of facts, each in a lane of its own. Those of one rail, or of one GPU, begin with these names.
const (
	ReaderBonds     = "bonds"
	ReaderAdapters  = "adapters"
	ReaderGPUDirect = "GPUDirect"
	ReaderGPUs      = "GPUs"
	ReaderAMD       = "GPUs of AMD"
	ReaderGPU       = "GPU "
	ReaderNUMA      = "NUMA"
	ReaderUptime    = "uptime"
	ReaderMemlock   = "limits on locked memory"
	ReaderDevices   = "RDMA device nodes"
	ReaderVerbs     = "libibverbs and its providers"
	ReaderAddresses = "addresses and routes"
	ReaderPCI       = "PCIe settings"
	ReaderUCX       = "transports of UCX"
	ReaderHolders   = "queue pairs of processes"
	ReaderQoS       = "PFC and DCQCN"
	laneVersions    = "versions of libraries"
)

// ErrVersion is returned by [Parse] when a peer's facts have another version.
var ErrVersion = errors.New("unknown version of facts")

// Bounds on texts, in bytes, and on the facts of a peer.
const (
	maxText     = 256 // text from the kernel, a file or a process
	maxPeerText = 1024
	maxPeerList = 4096 // list without the tag max
	maxUnread   = 256
)

// Parse decodes the facts of a peer, cleaned and bounded but not trustworthy. It fails with [ErrVersion] on another
// version.
func Parse(data []byte) (*Facts, error) {
	const invalid = "the peer sent invalid facts: %w"
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	if form.Version != Version {
		return nil, fmt.Errorf("%w: the peer speaks version %d, this node %d", ErrVersion, form.Version, Version)
	}
	f := &Facts{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	f.Unread = f.Unread[:min(len(f.Unread), maxUnread)]
	if err := sanitize(reflect.ValueOf(f).Elem(), "facts", maxPeerList); err != nil {
		return nil, fmt.Errorf(invalid, err)
	}
	if f.Node == "" {
		f.Node = "peer"
	}
	return f, nil
}

// sanitize makes a peer's value safe to judge, to print and to paste into a shell. It cleans and cuts texts, drops
// maps, which no peer sends, and fails on a list of more than most values. Names in any script stay unchanged, so that
// rails of one name still match.
func sanitize(v reflect.Value, name string, most int) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return sanitize(v.Elem(), name, most)
		}
	case reflect.Struct:
		if a, ok := reflect.TypeAssert[netip.Addr](v); ok {
			v.Set(reflect.ValueOf(a.WithZone(""))) // a zone may be any text, and no GID has one
			return nil
		}
		for field, value := range v.Fields() {
			most, err := strconv.Atoi(field.Tag.Get("max"))
			if err != nil {
				most = maxPeerList
			}
			if !value.CanSet() { // private fields of netip.Prefix
				continue
			}
			if err := sanitize(value, strings.ToLower(field.Name), most); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if v.Len() > most {
			return fmt.Errorf("%d %s (limit %d)", v.Len(), name, most)
		}
		for i := range v.Len() {
			if err := sanitize(v.Index(i), name, maxPeerList); err != nil {
				return err
			}
		}
	case reflect.Map:
		v.SetZero()
	case reflect.String:
		v.SetString(clip(v.String(), maxPeerText))
	default: // numbers and booleans need no cleaning
	}
	return nil
}

func clean(s string) string { return clip(s, maxText) }

func clip(s string, most int) string {
	s = terminal.PlainName(s) // before it is cut: half of a password is one, too
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// System describes the system around the rails.
type System struct {
	Memlock   Memlock     `json:"memlock"`
	Devices   Devices     `json:"devices"`
	Verbs     Verbs       `json:"verbs"`
	Versions  []Installed `json:"versions" max:"128"`
	GPUDirect GPUDirect   `json:"gpudirect"`
	QoS       []QoS       `json:"qos" max:"128"`
	PCI       PCI         `json:"pci"`
	UCX       UCX         `json:"ucx"`
	Jobs      Jobs        `json:"jobs"`
}

// maxPorts bounds the rails whose system is examined, to keep the facts far below 1 MB.
const maxPorts = 128

// Memlock is the amount of memory that this process may lock. ibv_reg_mr counts against RLIMIT_MEMLOCK unless the
// process has CAP_IPC_LOCK in the first user namespace (ib_umem_get in drivers/infiniband/core/umem.c).
type Memlock struct {
	Known  bool   `json:"known"`
	Soft   uint64 `json:"soft"`   // bytes; [proc.Unlimited] without a limit
	Hard   uint64 `json:"hard"`   // bytes; [proc.Unlimited] without a limit
	Exempt bool   `json:"exempt"` // the process has CAP_IPC_LOCK in the first user namespace
}

// Devices describes which RDMA devices this process can open.
type Devices struct {
	Known   bool     `json:"known"`           // sysfs shows whether ib_uverbs is loaded
	Class   bool     `json:"class"`           // ib_uverbs is loaded: /sys/class/infiniband_verbs exists
	Uverbs  []Uverbs `json:"uverbs"`          // one per device of a rail
	RDMACM  bool     `json:"rdma_cm"`         // /dev/infiniband/rdma_cm exists
	NodeDir bool     `json:"dev"`             // /dev exists
	Nodes   []string `json:"nodes,omitempty"` // device nodes that a container needs for all rails; empty if unknown
}

// Uverbs is the device node of one RDMA device.
type Uverbs struct {
	Device string `json:"device"` // such as mlx5_0
	Node   string `json:"node"`   // such as /dev/infiniband/uverbs0
	State  string `json:"state"`  // one of the Uverbs constants
	Mode   string `json:"mode"`   // permissions and owner, if it exists
	Err    string `json:"error"`  // error of the open call
	// ABI is the version of the driver's interface to programs (abi_version in sysfs); nil if unknown.
	ABI *uint64 `json:"abi,omitempty"`
}

// Results of opening a device node.
const (
	UverbsGood    = "good"    // the node opened, or was not tried
	UverbsMissing = "missing" // the node does not exist
	UverbsDenied  = "denied"  // EACCES: the node's permissions
	UverbsRules   = "rules"   // EPERM: device rules of a control group
	UverbsOther   = "other"   // any other error, see Err
)

// Verbs is what libibverbs would find on this process's file system.
type Verbs struct {
	Known     bool       `json:"known"`     // a library directory exists
	Library   string     `json:"library"`   // path of libibverbs.so.1; empty if none
	Providers []Provider `json:"providers"` // one per provider that rails need
}

// Provider is the part of libibverbs for one family of devices.
type Provider struct {
	Name    string `json:"name"`
	Library string `json:"library"` // path of lib<name>-rdmav<N>.so; empty if none
	Config  string `json:"config"`  // path of the file in /etc/libibverbs.d that names it; empty if none

	ABI *verbsabi.Range `json:"abi,omitempty"` // versions of the kernel's interface that it supports; nil if unknown
}

// Installed is one installed or running version. A node may have several versions of one component.
type Installed struct {
	Component string `json:"component"`
	Of        string `json:"of"` // adapter type or driver; only versions with equal Of are compared
	Version   string `json:"version"`
	Where     string `json:"where"` // file that shows the version
}

// GPUDirect describes how adapters access the memory of GPUs; with GPUs of both vendors, that of the worse one.
type GPUDirect struct {
	AMD    bool   `json:"amd"`    // the GPUs are of AMD
	GPUs   int    `json:"gpus"`   // number of GPUs that the driver lists
	Model  string `json:"model"`  // model of the first GPU; empty for AMD's
	Module string `json:"module"` // loaded peer memory module; empty if none
	Mode   string `json:"mode"`   // peermem, dmabuf, none or unsupported; empty if unknown
	Reason string `json:"reason"`
	Driver string `json:"driver"` // driver version
	Kernel string `json:"kernel"`
}

// QoS is one rail's configuration for lossless traffic and congestion control.
type QoS struct {
	Device   string    `json:"device"`
	Port     int       `json:"port"`
	Settings []Setting `json:"settings" max:"64"` // settings that could be read
}

// Setting is one setting as text: two rails agree if their texts are equal.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Where string `json:"where"`
}

// Jobs holds the settings of processes that decide how NCCL and UCX connect, and which of the named devices exist.
type Jobs struct {
	Envs    []Env      `json:"envs"`
	Devices []RDMAPort `json:"devices"` // RDMA ports of this network namespace
	Netdevs []string   `json:"netdevs"` // existing interfaces that an environment names
	// RDMANames maps interfaces to UCX's names of their RDMA ports, such as mlx5_0:1.
	RDMANames map[string]string `json:"rdma_names,omitempty"`
	Read      int               `json:"looked"`        // number of processes whose environment was read
	GPU       []GPUJob          `json:"gpu,omitempty"` // jobs that hold GPU memory, if known
	// Conclusions and Classes appear only in a peer's facts, which otherwise have only Read.
	Conclusions []Conclusion `json:"conclusions"`
	Classes     []int        `json:"classes,omitempty" max:"256"` // traffic classes that they set
	Holders     []Holder     `json:"holders,omitempty"`           // processes that send over rails
}

// GPUJob is a job that holds GPU memory and has connected queue pairs: a pod, container, Slurm job or process tree.
type GPUJob struct {
	Name  string   `json:"name"`  // name of the pod or container, else of the oldest process
	Comm  string   `json:"comm"`  // name of the oldest process
	GPUs  int      `json:"gpus"`  // number of GPUs whose memory it holds
	Rails []string `json:"rails"` // names of the rails on which it has connected queue pairs

	EnvironmentRead bool     `json:"environment_read"` // the environments of all its processes were read
	Variables       []string `json:"variables"`        // names of the variables that are set and select rails
}

// Conclusion is a node's report to its peers about its own processes: a check that found a fault, and how many it
// found.
type Conclusion struct {
	Check     string `json:"check"`
	Severity  string `json:"severity"`
	Processes int    `json:"processes"`
	Files     int    `json:"files"` // configuration files that set the variable for every job
}

// Env is one environment and the processes or the file that have it. Only variables that the checks examine are kept.
type Env struct {
	Vars      map[string]string `json:"vars"`
	File      string            `json:"file,omitempty"`      // configuration file, instead of processes
	Foreign   bool              `json:"foreign,omitempty"`   // in another network namespace, with other devices
	Count     int               `json:"count"`               // number of processes that have it
	Processes []Process         `json:"processes,omitempty"` // some of these processes
}

// Process is one process.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// Holder is a process with connected queue pairs.
type Holder struct {
	Process
	Rails []string `json:"rails"` // names of the rails of these queue pairs
	Nodes []int    `json:"nodes"` // NUMA nodes of the processors that it may run on
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
}
