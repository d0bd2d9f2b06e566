// Package config reads the configuration file into plain values. It rejects unknown keys and invalid values with
// file, line and a valid form.
package config

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// DefaultPort is the default port of a peer.
const DefaultPort = "10092"

// Config is the configuration. The zero value applies without a file.
type Config struct {
	Empty  bool   `yaml:"-"` // the file has only comments, as one that is being written; {} is not empty
	Rails  Rails  `yaml:"rails"`
	Expect Expect `yaml:"expect"`
	Probe  *Probe `yaml:"probe"` // nil: the probe neither asks nor answers peers

	Findings Findings `yaml:"findings"`

	Maintenance string `yaml:"maintenance"` // absolute path; see [Config.MaintenanceFile]
}

// DefaultMaintenance is the default maintenance file.
const DefaultMaintenance = "/run/railscope/maintenance"

// MaintenanceFile returns the path of the file that exists during maintenance of this node.
func (c *Config) MaintenanceFile() string { return cmp.Or(c.Maintenance, DefaultMaintenance) }

// ReportVirtual is the value of rails.virtual_functions that exports their counters.
const ReportVirtual = "report"

// Rails selects the ports that are rails, and sets their names and roles.
type Rails struct {
	// Matches devices, or device/port if it has a slash; nil: every port without a reason against it.
	Include *regexp.Regexp    `yaml:"include"`
	Exclude *regexp.Regexp    `yaml:"exclude"` // like Include; nil: none
	Names   map[string]string `yaml:"names"`   // rail → port, as written
	Ports   map[string]string `yaml:"-"`       // Names as port → rail, with ports in the form of rail.Key

	Roles     map[string]*regexp.Regexp `yaml:"roles"` // role → device names, as written
	RoleRules []RoleRule                `yaml:"-"`     // Roles in the order of the file

	Leaf map[string]string `yaml:"leaf"` // rail → switch that it is connected to

	VirtualFunctions string `yaml:"virtual_functions"` // empty: ignore
}

// RoleRule gives a role to devices; the first rule that matches a device applies.
type RoleRule struct {
	Role    string
	Devices *regexp.Regexp
}

// Expect is the expected state of this node; 0: not configured.
type Expect struct {
	Rails Count `yaml:"rails"`
	Rate  Rate  `yaml:"rate"` // rate of every port
	MTU   Count `yaml:"mtu"`  // RoCE MTU of every port, bytes
	GPUs  Count `yaml:"gpus"`
}

// Probe says which peers to probe and to answer, and how.
type Probe struct {
	Listen    string   `yaml:"listen"` // host:port; empty: peers are not answered
	Name      string   `yaml:"name"`   // name of this node; empty: the host's name
	Peers     []string `yaml:"peers"`  // host:port
	DNS       []string `yaml:"-"`      // host:port of the peers written as dns+host
	Files     []string `yaml:"-"`      // absolute patterns of the files written as file:pattern
	TokenFile string   `yaml:"token_file"`
	TLS       TLS      `yaml:"tls"`
	Insecure  bool     `yaml:"insecure"`   // answer anyone
	AllowRing bool     `yaml:"allow_ring"` // take part in rings of other peers' measurements

	Fanout         Count    `yaml:"fanout"`
	Interval       Duration `yaml:"interval"`
	Timeout        Duration `yaml:"timeout"`
	LatencySamples Count    `yaml:"latency_samples"`
	Burst          Duration `yaml:"burst"`
	Depth          Count    `yaml:"depth"`
	QueuePairs     AutoInt  `yaml:"queue_pairs"`
	SoloEvery      Count    `yaml:"solo_every"`
	Budget         Budget   `yaml:"budget"`
	BusyAbove      Ratio    `yaml:"busy_above"`
	MinOfExpected  Ratio    `yaml:"min_of_expected"`
	TrafficClass   AutoInt  `yaml:"traffic_class"` // DSCP << 2 and ECN
	ServiceLevel   AutoInt  `yaml:"service_level"`
	PKey           PKey     `yaml:"pkey"`
	Memory         string   `yaml:"memory"`
	Extras         []string `yaml:"extras"` // kinds of extra measurements; see Extras
}

// Extras returns the kinds of extra measurements that rounds can make, the same as the probe's.
func Extras() []string { return []string{"loopback", "paths", "contention", "gpu"} }

// TLS configures the TLS of the control channel. Relative names are resolved against the configuration's directory.
type TLS struct {
	CertFile           string   `yaml:"cert_file"`
	KeyFile            string   `yaml:"key_file"`
	ClientCAFile       string   `yaml:"client_ca_file"`
	ClientAllowedNames []string `yaml:"client_allowed_names"` // empty: any name that the authority signed
}

// DefaultProbe returns the defaults of the keys below probe.
func DefaultProbe() *Probe {
	return &Probe{
		Fanout:         4,
		Interval:       Duration(time.Minute),
		Timeout:        Duration(30 * time.Second),
		LatencySamples: 200,
		Burst:          Duration(5 * time.Millisecond),
		Depth:          16,
		QueuePairs:     Auto,
		SoloEvery:      5,
		Budget:         Budget{Share: 0.005},
		BusyAbove:      0.2,
		MinOfExpected:  0.7,
		TrafficClass:   Auto,
		ServiceLevel:   Auto,
		Memory:         "host",
	}
}

var (
	validName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
	validLeaf   = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,63}$`)
	validDevice = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	validPort   = regexp.MustCompile(`^([^/:\s]+)/([1-9][0-9]{0,2})$`)
	validPCI    = regexp.MustCompile(`^([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:/([1-9][0-9]{0,2}))?$`)
)

// maxRoles limits the series of rails_imbalance_ratio.
const maxRoles = 8

func (d *document) checkRoles(r *Rails) error {
	n := d.nodes["rails.roles"]
	if n == nil || isNull(n) {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		switch {
		case !validName.MatchString(name.Value):
			return d.errorf(name, "invalid role %q: use letters, digits, _ . -, 32 at most", name.Value)
		case i/2 >= maxRoles:
			return d.errorf(name, "more than %d roles", maxRoles)
		}
		r.RoleRules = append(r.RoleRules, RoleRule{name.Value, r.Roles[name.Value]})
	}
	return nil
}

func (d *document) checkLeaves(r *Rails) error {
	n := d.nodes["rails.leaf"]
	if n == nil || isNull(n) {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		switch {
		case !validName.MatchString(name.Value):
			return d.errorf(name, "invalid rail name %q: use letters, digits, _ . -, 32 at most", name.Value)
		case !validLeaf.MatchString(value.Value):
			return d.wrong(value, "rails.leaf."+name.Value)
		}
	}
	return nil
}

func (d *document) checkRails(r *Rails) error {
	if err := cmp.Or(d.checkRoles(r), d.checkLeaves(r)); err != nil {
		return err
	}
	n := d.nodes["rails.names"]
	if n == nil || isNull(n) {
		return nil
	}
	r.Ports = map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		path := "rails.names." + name.Value
		port, device, number, ok := parsePort(value.Value)
		switch {
		case !validName.MatchString(name.Value):
			return d.errorf(name, "invalid rail name %q: use letters, digits, _ . -, 32 at most", name.Value)
		case !ok:
			return d.wrong(value, path)
		case r.Ports[port] != "":
			return d.errorf(value, "%s already has the name %s", value.Value, r.Ports[port])
		case device != "" && r.Include != nil && !rail.Matches(r.Include, device, number):
			return d.errorf(value, "%s is %s, which rails.include %q excludes", path, value.Value, r.Include)
		case device != "" && r.Exclude != nil && rail.Matches(r.Exclude, device, number):
			return d.errorf(value, "%s is %s, which rails.exclude %q excludes", path, value.Value, r.Exclude)
		}
		r.Ports[port] = name.Value
	}
	return nil
}

// parsePort returns the key of a port that is written as device, device/port or PCI address; device is set in the
// first two forms. Without a port number, it is port 1.
func parsePort(s string) (key, device string, number int, ok bool) {
	if m := validPCI.FindStringSubmatch(s); m != nil {
		port, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		return rail.Key(strings.ToLower(m[1]), port), "", port, true
	}
	if validDevice.MatchString(s) {
		return rail.Key(s, 1), s, 1, true
	}
	m := validPort.FindStringSubmatch(s)
	if m == nil {
		return "", "", 0, false
	}
	port, _ := strconv.Atoi(m[2])
	return rail.Key(m[1], port), m[1], port, true
}
