package main

import (
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
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
