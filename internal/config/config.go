// Package config reads the configuration file into plain values. It refuses what it does not understand with file,
// line and what would be right, and knows nothing of whoever uses the values.
package config

import (
	"cmp"
	"regexp"
	"time"
)

// DefaultPort is the port of a peer where none is written.
const DefaultPort = "10092"

// Config is the configuration. The zero value is what applies without a file.
type Config struct {
	Empty  bool   `yaml:"-"` // nothing but comments, as a file that is being written; {} is not empty
	Rails  Rails  `yaml:"rails"`
	Expect Expect `yaml:"expect"`
	Probe  *Probe `yaml:"probe"` // nil: neither ask peers nor answer them

	Maintenance string `yaml:"maintenance"` // absolute path; see [Config.MaintenanceFile]
}

// DefaultMaintenance is the maintenance file where none is written.
const DefaultMaintenance = "/run/railscope/maintenance"

// MaintenanceFile returns the path of the file that says that people are at work on this node.
func (c *Config) MaintenanceFile() string { return cmp.Or(c.Maintenance, DefaultMaintenance) }

// Rails says which ports are rails, and their names.
type Rails struct {
	Include *regexp.Regexp    `yaml:"include"` // on device names; nil: every port that is not a virtual function
	Names   map[string]string `yaml:"names"`   // rail → port, as written
	Ports   map[string]string `yaml:"-"`       // Names as port → rail, the port as rail.Key has it
}

// Expect is what the rails of this node should be.
type Expect struct {
	Rate Rate `yaml:"rate"` // of every port; 0: not configured
}

// Probe is whom to ask, whom to answer and how.
type Probe struct {
	Listen    string   `yaml:"listen"` // host:port; empty: answer nobody
	Name      string   `yaml:"name"`   // of this node; empty: the host's name
	Peers     []string `yaml:"peers"`  // host:port
	DNS       []string `yaml:"-"`      // host:port of those that were written as dns+host
	TokenFile string   `yaml:"token_file"`
	TLS       TLS      `yaml:"tls"`
	Insecure  bool     `yaml:"insecure"` // answer anyone

	Interval       Duration `yaml:"interval"`
	Timeout        Duration `yaml:"timeout"`
	LatencySamples Count    `yaml:"latency_samples"`
	Transfer       Size     `yaml:"transfer"`
	Chunk          Size     `yaml:"chunk"`
	Depth          Count    `yaml:"depth"`
	QueuePairs     Count    `yaml:"queue_pairs"`
	SoloEvery      Count    `yaml:"solo_every"`
	Budget         Budget   `yaml:"budget"`
	BusyAbove      Ratio    `yaml:"busy_above"`
	MinOfExpected  Ratio    `yaml:"min_of_expected"`
	TrafficClass   Count    `yaml:"traffic_class"` // DSCP << 2
	Memory         string   `yaml:"memory"`
}

// TLS are the files of the control channel's TLS. Relative names were resolved against the configuration's directory.
type TLS struct {
	CertFile           string   `yaml:"cert_file"`
	KeyFile            string   `yaml:"key_file"`
	ClientCAFile       string   `yaml:"client_ca_file"`
	ClientAllowedNames []string `yaml:"client_allowed_names"` // empty: any that the authority has signed
}

// DefaultProbe is what applies below probe where the file has no value.
func DefaultProbe() *Probe {
	return &Probe{
		Interval:       Duration(time.Minute),
		Timeout:        Duration(30 * time.Second),
		LatencySamples: 200,
		Transfer:       64 << 20,
		Chunk:          1 << 20,
		Depth:          8,
		QueuePairs:     1,
		SoloEvery:      5,
		Budget:         8 << 30,
		BusyAbove:      0.2,
		MinOfExpected:  0.7,
		Memory:         "host",
	}
}
