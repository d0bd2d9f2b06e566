// Package facts reads, once, everything that doctor's checks judge: the rails of a node, the system around them, and
// what jobs set for them. A [Gatherer] reads the facts of this node; a peer's arrive as JSON over the probe's control
// channel ([Parse]). Nothing here has an opinion.
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
)

// Version is the version of the JSON form of [Facts].
const Version = 3

// Facts is what was read of one node; what could not be is zero, and in Unread. The tag max bounds a peer's lists.
type Facts struct {
	Version int    `json:"version"` // of this form; peers with another one are not compared
	Node    string `json:"node"`
	Network `json:"rails"`
	System  `json:"system"`
	Unread  []string `json:"unread"` // what could not be read, why, and what to do about it
	Live    *Live    `json:"-"`      // nil: no railscope runs
}

// ErrVersion says that a peer's facts have another version.
var ErrVersion = errors.New("unknown version of facts")

// Bounds on texts, in bytes, and on what a peer sends.
const (
	maxText     = 256 // of a value from the kernel, a file or a process
	maxPeerText = 1024
	maxPeerList = 4096 // of a list without the tag max
	maxUnread   = 256
)

// Parse reads the facts of a peer, cleaned and bounded, but not to be trusted. Another version fails with [ErrVersion].
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

// sanitize makes a peer's value safe to judge, to print and to paste into a shell: it cleans and cuts texts, drops
// maps, which no peer sends, and fails on a list of more than most values. Names in any script stay as they are, so
// that rails of one name still match.
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
			if !value.CanSet() { // the private fields of netip.Prefix
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
	s = terminal.PlainName(s[:min(len(s), most)])
	return strings.ToValidUTF8(s[:min(len(s), most)], "") // an invalid byte has become three
}

// System is what was read of the system around the rails.
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

// maxPorts bounds the rails whose system is examined, so that facts stay far below a megabyte.
const maxPorts = 128

// Memlock is how much memory this process may lock. ibv_reg_mr counts against RLIMIT_MEMLOCK unless the process has
// CAP_IPC_LOCK in the first user namespace (ib_umem_get in drivers/infiniband/core/umem.c).
type Memlock struct {
	Known  bool   `json:"known"`
	Soft   uint64 `json:"soft"`   // bytes; [proc.Unlimited] for no limit
	Hard   uint64 `json:"hard"`   // bytes, likewise
	Exempt bool   `json:"exempt"` // has CAP_IPC_LOCK where it counts
}

// Devices is what this process can open of the RDMA devices.
type Devices struct {
	Known   bool     `json:"known"`           // sysfs shows whether ib_uverbs is loaded
	Class   bool     `json:"class"`           // ib_uverbs is loaded: /sys/class/infiniband_verbs exists
	Uverbs  []Uverbs `json:"uverbs"`          // one for each device of a rail
	RDMACM  bool     `json:"rdma_cm"`         // /dev/infiniband/rdma_cm exists
	NodeDir bool     `json:"dev"`             // /dev exists
	Nodes   []string `json:"nodes,omitempty"` // device nodes that a container needs for all rails; empty unknown
}

// Uverbs is the device node of one RDMA device.
type Uverbs struct {
	Device string `json:"device"` // for example mlx5_0
	Node   string `json:"node"`   // for example /dev/infiniband/uverbs0
	State  string `json:"state"`  // one of the Uverbs constants
	Mode   string `json:"mode"`   // permissions and owner, if it exists
	Err    string `json:"error"`  // of opening it
}

// Results of opening a device node.
const (
	UverbsGood    = "good"    // it opened, or was not tried
	UverbsMissing = "missing" // it does not exist
	UverbsDenied  = "denied"  // EACCES: its permissions
	UverbsRules   = "rules"   // EPERM: device rules of a control group
	UverbsOther   = "other"   // anything else, see Err
)

// Verbs is what libibverbs would find on this process's file system.
type Verbs struct {
	Known     bool       `json:"known"`     // a library directory exists
	Library   string     `json:"library"`   // path of libibverbs.so.1; empty: none
	Providers []Provider `json:"providers"` // one for each provider that rails need
}

// Provider is libibverbs' part for one family of devices.
type Provider struct {
	Name    string `json:"name"`
	Library string `json:"library"` // path of lib<name>-rdmav<N>.so; empty: none
	Config  string `json:"config"`  // path of the file in /etc/libibverbs.d that names it; empty: none
}

// Installed is one version that is installed or running. A node may have several of one component.
type Installed struct {
	Component string `json:"component"`
	Of        string `json:"of"` // adapter type or driver: only versions of the same are compared
	Version   string `json:"version"`
	Where     string `json:"where"` // the file that shows it
}

// GPUDirect is how adapters reach the memory of NVIDIA GPUs.
type GPUDirect struct {
	GPUs   int    `json:"gpus"`   // known to the NVIDIA driver
	Model  string `json:"model"`  // of the first
	Module string `json:"module"` // the peer memory module that is loaded; empty: none
	Mode   string `json:"mode"`   // peermem, dmabuf, none or unsupported; empty unknown
	Reason string `json:"reason"`
	Driver string `json:"driver"` // version
	Kernel string `json:"kernel"`
}

// QoS is how one rail is configured for lossless traffic and congestion control.
type QoS struct {
	Device   string    `json:"device"`
	Port     int       `json:"port"`
	Settings []Setting `json:"settings" max:"64"` // those that could be read
}

// Setting is one setting as text: two rails agree if their texts are equal.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Where string `json:"where"`
}

// Jobs is what processes set that decides how NCCL and UCX connect, and what exists of what it names.
type Jobs struct {
	Envs        []Env             `json:"envs"`
	Devices     []RDMAPort        `json:"devices"`              // all RDMA ports of this network namespace
	Netdevs     []string          `json:"netdevs"`              // existing interfaces that an environment names
	RDMANames   map[string]string `json:"rdma_names,omitempty"` // UCX's names of their RDMA ports, for example mlx5_0:1
	Read        int               `json:"looked"`               // processes whose environment was read
	GPU         []GPUJob          `json:"gpu,omitempty"`        // that hold GPU memory, where processes are attributed
	Conclusions []Conclusion      `json:"conclusions"`          // only in a peer's facts, which have only Read beside it
	Holders     []Holder          `json:"holders,omitempty"`    // processes that send over rails
}

// GPUJob is a job that holds GPU memory and has connected queue pairs: a pod, container, Slurm job or tree of
// processes.
type GPUJob struct {
	Name  string   `json:"name"`  // of the pod or container, else of the oldest process
	Comm  string   `json:"comm"`  // name of the oldest process
	GPUs  int      `json:"gpus"`  // of which it holds memory
	Rails []string `json:"rails"` // names of those on which it has connected queue pairs

	EnvironmentRead bool     `json:"environment_read"` // of all its processes
	Variables       []string `json:"variables"`        // that are set there, of those that select rails; without values
}

// Conclusion is what a node reports to peers about its processes: which check found them wrong, and how many.
type Conclusion struct {
	Check     string `json:"check"`
	Severity  string `json:"severity"`
	Processes int    `json:"processes"`
	Files     int    `json:"files"` // configuration files that set the variable for every job
}

// Env is one environment and who has it. Only the variables that the checks examine are kept.
type Env struct {
	Vars      map[string]string `json:"vars"`
	File      string            `json:"file,omitempty"`      // a configuration file instead of processes
	Foreign   bool              `json:"foreign,omitempty"`   // in another network namespace, with other devices
	Count     int               `json:"count"`               // processes that have it
	Processes []Process         `json:"processes,omitempty"` // some of them
}

// Process is one process.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// Holder is a process with connected queue pairs.
type Holder struct {
	Process
	Rails []string `json:"rails"` // names of the rails that it has them on
	Nodes []int    `json:"nodes"` // NUMA nodes of the processors that it may run on
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
}
