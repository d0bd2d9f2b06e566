package rules

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// Sources are the files with the rules, in order.
func Sources() []string { return []string{"conditions-node.yml", "conditions-probe.yml", "alerts.yml"} }

// File is a Prometheus rule file.
type File struct {
	Groups []Group `yaml:"groups"`
}

// Group is a group of rules, evaluated together.
type Group struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"` // empty for the server's default
	Rules    []Rule `yaml:"rules"`
}

// Rule is a recording rule or an alert.
type Rule struct {
	Record        string            `yaml:"record"`
	Alert         string            `yaml:"alert"`
	Expr          string            `yaml:"expr"`
	For           string            `yaml:"for"`
	KeepFiringFor string            `yaml:"keep_firing_for"`
	Labels        map[string]string `yaml:"labels"`
	Annotations   map[string]string `yaml:"annotations"`
}

// Load returns all rules of the [Sources] in dir. Unknown keys are errors.
func Load(dir string) ([]Rule, error) {
	groups, err := LoadGroups(dir)
	var all []Rule
	for _, g := range groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// LoadGroups returns all groups of the [Sources] in dir, in their order.
func LoadGroups(dir string) (all []Group, err error) {
	for _, name := range Sources() {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		var file File
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, file.Groups...)
	}
	return all, nil
}
