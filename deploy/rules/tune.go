package rules

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed conditions-node.yml conditions-probe.yml alerts.yml
var sources embed.FS

const (
	thresholdPrefix = "railscope:threshold:"
	disabledRecord  = "railscope:disabled"
	alertPrefix     = "Railscope"
	optionalGroup   = "railscope.gpu"
)

// Tuning is a site's changes to the rules.
type Tuning struct {
	Thresholds map[string]float64 // by recording rule, without the prefix
	Disabled   []string           // alerts, or the optional group
}

// Thresholds returns the shipped thresholds by name.
func Thresholds() (map[string]string, error) {
	groups, err := documents()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, group := range groups {
		for _, rule := range value(group, "rules").Content {
			if name, ok := threshold(rule); ok {
				all[name] = strings.TrimSuffix(strings.TrimPrefix(value(rule, "expr").Value, "vector("), ")")
			}
		}
	}
	return all, nil
}

// Write writes all rules as one rule file, with other thresholds and without the alerts that are disabled.
func Write(w io.Writer, tuning Tuning) error {
	if err := tuning.Check(); err != nil {
		return err
	}
	groups, err := documents()
	if err != nil {
		return err
	}
	off := map[string]bool{}
	for _, name := range tuning.Disabled {
		off[name] = true
	}
	for _, group := range groups {
		if inDisabled(group, off) {
			for _, alert := range alertsOf(group) {
				off[alert] = true
			}
		}
	}
	groups = slices.DeleteFunc(groups, func(group *yaml.Node) bool { return inDisabled(group, off) })
	for _, group := range groups {
		rules := value(group, "rules")
		rules.Content = tuning.apply(rules.Content, off)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Content: groups}
	file := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("groups"), list}}
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(file); err != nil {
		return err
	}
	return out.Close()
}

// inDisabled reports whether a group is disabled: the optional group, or the one with its alerts.
func inDisabled(group *yaml.Node, off map[string]bool) bool {
	return off[strings.TrimSuffix(value(group, "name").Value, ".alerts")]
}

// apply returns the rules of a group as tuned.
func (t Tuning) apply(rules []*yaml.Node, off map[string]bool) (kept []*yaml.Node) {
	for _, rule := range rules {
		if a := value(rule, "alert"); a != nil && off[a.Value] {
			continue
		}
		if name, ok := threshold(rule); ok {
			if v, ok := t.Thresholds[name]; ok {
				value(rule, "expr").Value = "vector(" + strconv.FormatFloat(v, 'f', -1, 64) + ")"
			}
		}
		kept = append(kept, rule)
		if r := value(rule, "record"); r == nil || r.Value != disabledRecord {
			continue
		}
		for _, alert := range slices.Sorted(maps.Keys(off)) {
			if fault, ok := strings.CutPrefix(alert, alertPrefix); ok {
				kept = append(kept, disabled(fault))
			}
		}
	}
	return kept
}

// disabled returns the rule that informs the rollup about a disabled alert.
func disabled(fault string) *yaml.Node {
	labels := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle,
		Content: []*yaml.Node{text("fault"), text(fault)}}
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("record"), text(disabledRecord), text("expr"),
		text("vector(1)"), text("labels"), labels}}
}

// bounds are those of a threshold, by its name. Outside them the alert fires always or never.
func bounds(name string) (least, most float64) {
	switch name {
	case "latency_ratio":
		return 1, 1000
	case "boot_grace_seconds":
		return 0, 86400
	case "rail_memory_days":
		return 1, 365
	case "gpu_memory_free_bytes":
		return 0, 1 << 40
	case "many_nodes":
		return 1, 1e6
	}
	if strings.HasSuffix(name, "_ratio") {
		return 0, 1
	}
	return 0, 1e9 // per second, minute or hour
}

// Check refuses names that do not exist, with those that do, and thresholds outside their bounds.
func (t Tuning) Check() error {
	groups, err := documents()
	if err != nil {
		return err
	}
	thresholds, err := Thresholds()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.Thresholds)) {
		if _, ok := thresholds[name]; !ok {
			return fmt.Errorf("unknown threshold %q; the thresholds are %s", name,
				strings.Join(slices.Sorted(maps.Keys(thresholds)), ", "))
		}
		least, most := bounds(name)
		if v := t.Thresholds[name]; math.IsNaN(v) || v < least || v > most {
			return fmt.Errorf("threshold %s must be a number from %.12g to %.12g, not %v", name, least, most, v)
		}
	}
	known := []string{optionalGroup}
	for _, group := range groups {
		known = append(known, alertsOf(group)...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range t.Disabled {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown alert %q; the alerts and groups are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// documents returns the groups of all sources, with their comments.
func documents() (groups []*yaml.Node, err error) {
	for _, name := range Sources() {
		text, err := sources.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var doc yaml.Node
		if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		groups = append(groups, value(doc.Content[0], "groups").Content...)
	}
	return groups, nil
}

func alertsOf(group *yaml.Node) (names []string) {
	for _, rule := range value(group, "rules").Content {
		if a := value(rule, "alert"); a != nil {
			names = append(names, a.Value)
		}
	}
	return names
}

func threshold(rule *yaml.Node) (name string, ok bool) {
	if r := value(rule, "record"); r != nil {
		return strings.CutPrefix(r.Value, thresholdPrefix)
	}
	return "", false
}

// value returns the value of a key in a mapping; nil if it is missing.
func value(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }
