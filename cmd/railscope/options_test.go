package main

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/probe/options"
)

// TestProbeOptions: the defaults of the configuration equal those of the probe, and every option has a key.
func TestProbeOptions(t *testing.T) {
	if diff := cmp.Diff(options.DefaultOptions(),
		*probeOptions(&config.Config{Probe: config.DefaultProbe()})); diff != "" {
		t.Errorf("-probe +configuration: %s", diff)
	}
	if probeOptions(&config.Config{}) != nil {
		t.Error("a probe without configuration")
	}
	p := &config.Probe{}
	fill(reflect.ValueOf(p).Elem())
	opts := probeOptions(&config.Config{Probe: p})
	opts.Security.Name = "of the asked peer, not of the configuration"
	unset(t, reflect.ValueOf(opts).Elem(), "probe.Options")
	if config.DefaultPort != options.DefaultPort {
		t.Errorf("port %s in the configuration, %s in the probe", config.DefaultPort, options.DefaultPort)
	}
	p = config.DefaultProbe()
	if p.Check() != nil {
		t.Fatal(p.Check())
	}
	p.Timeout = config.Duration(options.MaxTimeout)
	if bad := p.Check(); bad != nil {
		t.Errorf("the longest timeout: %+v", bad)
	}
	p.Timeout++
	if p.Check() == nil {
		t.Error("a timeout longer than that of the probe")
	}
}

// fill sets every field to a value other than zero.
func fill(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.ValueOf([]string{"x"}))
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanFloat():
		v.SetFloat(1)
	case v.CanUint():
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// unset fails for every field that has its zero value.
func unset(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	for i := range v.NumField() {
		field := name + "." + v.Type().Field(i).Name
		if v.Field(i).Kind() == reflect.Struct {
			unset(t, v.Field(i), field)
		} else if v.Field(i).IsZero() {
			t.Errorf("no key sets %s", field)
		}
	}
}
