// Package config reads the configuration file into plain values. It rejects unknown keys and invalid values with
// file, line and a valid form.
package config

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/options"
)

// Config is the configuration. The zero value applies without a file.
type Config struct {
	Empty       bool   // the file has only comments, as one that is being written; {} is not empty
	Digest      string // digest of the file, by which nodes are compared; empty without a file
	Rails       Rails
	Expect      Expect
	Findings    Findings
	Probe       *options.Options // nil: the probe neither asks nor answers peers
	Maintenance string           // absolute path; see [Config.MaintenanceFile]
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
	Include *regexp.Regexp
	Exclude *regexp.Regexp    // like Include; nil: none
	Names   map[string]string // rail → port, as written
	Ports   map[string]string // Names as port → rail, with ports in the form of rail.Key

	Roles     map[string]*regexp.Regexp // role → device names, as written
	RoleRules []RoleRule                // Roles in the order of the file

	Leaf map[string]string // rail → switch that it is connected to

	VirtualFunctions string // empty: ignore
}

// RoleRule gives a role to devices; the first rule that matches a device applies.
type RoleRule struct {
	Role    string
	Devices *regexp.Regexp
}

// Expect is the expected state of this node; 0: not configured.
type Expect struct {
	Rails Count
	Rate  Rate  // rate of every port
	MTU   Count // RoCE MTU of every port, bytes
	GPUs  Count
}

// ProbeOptions returns the options of the probe, or their defaults without a probe.
func (c *Config) ProbeOptions() options.Options {
	if c.Probe == nil {
		return options.DefaultOptions()
	}
	return *c.Probe
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
