package facts

// System is what was read of the system around the rails.
type System struct {
	Ports     []port      `json:"ports"` // only on the wire, see [Facts.MarshalJSON]
	Memlock   Memlock     `json:"memlock"`
	Devices   Devices     `json:"devices"`
	Verbs     Verbs       `json:"verbs"`
	Versions  []Installed `json:"versions"`
	GPUDirect GPUDirect   `json:"gpudirect"`
	QoS       []QoS       `json:"qos"`
	Jobs      Jobs        `json:"jobs"`
}

// port is a rail as the system's part of the JSON form has it.
type port struct {
	Rail      string `json:"rail"`
	Device    string `json:"device"`
	Port      int    `json:"port"`
	Netdev    string `json:"netdev"`
	LinkLayer string `json:"link_layer"`
	Active    bool   `json:"active"`
	Kind      string `json:"kind"`
	Provider  string `json:"provider"`
}

// maxPorts bounds the rails whose system is examined, so that facts stay far
// below a megabyte.
const maxPorts = 128

// Memlock is how much memory this process may lock. ibv_reg_mr counts against
// RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK in the first user namespace
// (ib_umem_get in drivers/infiniband/core/umem.c).
type Memlock struct {
	Known  bool   `json:"known"`
	Soft   uint64 `json:"soft"`   // bytes; [proc.Unlimited] for no limit
	Hard   uint64 `json:"hard"`   // bytes, likewise
	Exempt bool   `json:"exempt"` // has CAP_IPC_LOCK where it counts
}

// Devices is what this process can open of the RDMA devices.
type Devices struct {
	Known   bool     `json:"known"`   // sysfs shows whether ib_uverbs is loaded
	Class   bool     `json:"class"`   // ib_uverbs is loaded: /sys/class/infiniband_verbs exists
	Uverbs  []Uverbs `json:"uverbs"`  // one for each device of a rail
	RDMACM  bool     `json:"rdma_cm"` // /dev/infiniband/rdma_cm exists
	NodeDir bool     `json:"dev"`     // /dev exists
	// Nodes are the device nodes that a container needs for all rails; empty if not known.
	Nodes []string `json:"nodes,omitempty"`
}

// Uverbs is the device node of one RDMA device.
type Uverbs struct {
	Device string `json:"device"` // for example mlx5_0
	Node   string `json:"node"`   // for example /dev/infiniband/uverbs0
	State  string `json:"state"`  // one of the Uverbs constants
	Mode   string `json:"mode"`   // permissions and owner, if it exists
	Err    string `json:"error"`  // of opening it
}

// What became of opening a device node.
const (
	UverbsGood    = "good"    // it opened, or was not tried
	UverbsMissing = "missing" // it does not exist
	UverbsDenied  = "denied"  // EACCES: its permissions
	UverbsRules   = "rules"   // EPERM: device rules of a control group
	UverbsOther   = "other"   // anything else, see Err
)

// Verbs is what libibverbs would find on this process's file system.
type Verbs struct {
	Known     bool       `json:"known"`     // there are directories of libraries at all
	Library   string     `json:"library"`   // path of libibverbs.so.1; empty if there is none
	Providers []Provider `json:"providers"` // one for each provider that rails need
}

// Provider is libibverbs' part for one family of devices.
type Provider struct {
	Name    string `json:"name"`
	Library string `json:"library"` // path of lib<name>-rdmav<N>.so; empty if there is none
	Config  string `json:"config"`  // path of the file in /etc/libibverbs.d that names it; empty if none does
}

// Installed is one version that is installed or running. A node may have several
// of one component.
type Installed struct {
	Component string `json:"component"`
	Of        string `json:"of"` // the type of adapter, if only like may be compared with like
	Version   string `json:"version"`
	Where     string `json:"where"` // the file that says so
}

// GPUDirect is how adapters reach the memory of NVIDIA GPUs.
type GPUDirect struct {
	GPUs   int    `json:"gpus"`   // that the NVIDIA driver has
	Model  string `json:"model"`  // of the first
	Module string `json:"module"` // the peer memory module that is loaded; empty for none
	Mode   string `json:"mode"`   // peermem, dmabuf, none or unsupported; empty if not known
	Reason string `json:"reason"`
	Driver string `json:"driver"` // version
	Kernel string `json:"kernel"`
}

// QoS is how one rail is configured for lossless traffic and congestion.
type QoS struct {
	Device   string    `json:"device"`
	Port     int       `json:"port"`
	Settings []Setting `json:"settings"` // those that could be read
}

// Setting is one of them, as text: two rails are alike if their texts are.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Where string `json:"where"`
}

// Jobs is what processes have in their environment that decides which way NCCL
// and UCX go, and what exists of what it names.
type Jobs struct {
	Envs    []Env      `json:"envs"`
	Devices []RDMAPort `json:"devices"` // all RDMA ports of this network namespace, those that are no rails too
	Netdevs []string   `json:"netdevs"` // existing interfaces that an environment names
	GIDs    []NamedGID `json:"gids"`    // entries of rails' GID tables that an environment names
	Read    int        `json:"looked"`  // processes whose environment was read

	// RDMANames are what UCX calls the RDMA ports of Netdevs, for example mlx5_0:1.
	RDMANames map[string]string `json:"rdma_names,omitempty"`
	// Conclusions are all that a peer gets of this, beside Read. On the node
	// itself there are none.
	Conclusions []Conclusion `json:"conclusions"`
}

// Conclusion is what a node reports to peers about the environments of its
// processes: that one check finds them wrong, and how many.
type Conclusion struct {
	Check     string `json:"check"`
	Severity  string `json:"severity"`
	Processes int    `json:"processes"`
	Files     int    `json:"files"` // configuration files that set the variable for every job
}

// Env is one environment, and who has it. Only the few variables that the checks
// examine are kept.
type Env struct {
	Vars map[string]string `json:"vars"`
	File string            `json:"file,omitempty"` // a configuration file instead of processes
	// in another network namespace: names mean other devices there
	Foreign   bool      `json:"foreign,omitempty"`
	Count     int       `json:"count"`               // processes that have it
	Processes []Process `json:"processes,omitempty"` // some of them
}

// Process is one process.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
}

// NamedGID is an entry of a rail's GID table.
type NamedGID struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Index  int    `json:"index"`
	Used   bool   `json:"used"`
	Good   bool   `json:"good"` // RoCE v2 over IPv4; over IPv6 if the rail has nothing better; never link-local
	Type   string `json:"type"`
	GID    string `json:"gid"`
}
