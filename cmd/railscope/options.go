package main

import (
	"time"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// railOptions returns the options of the finder.
func railOptions(c *config.Config) rail.Options {
	o := rail.Options{Include: c.Rails.Include, Exclude: c.Rails.Exclude, Names: c.Rails.Ports,
		Leaves: c.Rails.Leaf, VirtualFunctions: c.Rails.VirtualFunctions == config.ReportVirtual}
	for _, r := range c.Rails.RoleRules {
		o.Roles = append(o.Roles, rail.RoleRule(r))
	}
	return o
}

// probeOptions returns the options of the probe; nil: no probe.
func probeOptions(c *config.Config) *options.Options {
	p := c.Probe
	if p == nil {
		return nil
	}
	return &options.Options{
		Listen: p.Listen,
		Name:   p.Name,
		Peers:  p.Peers,
		DNS:    p.DNS,
		Files:  p.Files,
		Fanout: int(p.Fanout),
		Security: options.Security{
			TokenFile:          p.TokenFile,
			CertFile:           p.TLS.CertFile,
			KeyFile:            p.TLS.KeyFile,
			ClientCAFile:       p.TLS.ClientCAFile,
			ClientAllowedNames: p.TLS.ClientAllowedNames,
			Insecure:           p.Insecure,
		},
		Interval:       time.Duration(p.Interval),
		Timeout:        time.Duration(p.Timeout),
		LatencySamples: int(p.LatencySamples),
		Burst:          time.Duration(p.Burst),
		Depth:          int(p.Depth),
		QueuePairs:     int(p.QueuePairs),
		SoloEvery:      int(p.SoloEvery),
		Budget:         options.Budget{Share: p.Budget.Share, Bytes: int64(p.Budget.Bytes)},
		BusyAbove:      float64(p.BusyAbove),
		MinOfExpected:  float64(p.MinOfExpected),
		TrafficClass:   int(p.TrafficClass),
		ServiceLevel:   int(p.ServiceLevel),
		PKey:           uint16(p.PKey),
		Memory:         p.Memory,
		AllowRing:      p.AllowRing,
		Extras:         extras(p.Extras),
	}
}

// pathsOfRounds is the number of flow labels that rounds measure per rail.
const pathsOfRounds = 16

func extras(words []string) (list []result.Extra) {
	for _, word := range words {
		e := result.Extra{Kind: result.Kind(word)}
		if e.Kind == result.Paths {
			e.Counts = []int{pathsOfRounds}
		}
		list = append(list, e)
	}
	return list
}
