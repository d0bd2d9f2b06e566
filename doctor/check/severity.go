package check

import (
	"slices"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe/result"
)

// halfLost is the part of what a rail or bond should carry, at or below which most of the network is lost.
const halfLost = 0.5

// ofLink is the severity of links that carry now of what they should carry.
func ofLink(now, should float64) finding.Severity {
	if now <= halfLost*should {
		return critical
	}
	return warning
}

// ofGoodput is the severity of goodput that is this part of what it should be.
func ofGoodput(part float64) finding.Severity {
	if part < result.CriticalBelow {
		return critical
	}
	return warning
}

// otherSeverities are those that findings of a check may have besides the one of its row: no others are reported. They
// are compared with the alerts of the same fault.
func otherSeverities() map[string][]finding.Severity {
	return map[string][]finding.Severity{
		"no_rails":               {info},
		"adapter_without_rdma":   {info},
		"rail_missing":           {warning, info},
		"rate_lost":              {warning},
		"pcie_lost":              {critical},
		"pcie_link_low":          {critical},
		"gid_missing":            {warning},
		"gid_link_local":         {info},
		"gid_misbound":           {warning},
		"bond_mode":              {warning},
		"bond_no_lag":            {warning, info},
		"bond_member_down":       {warning},
		"bond_lacp":              {warning},
		"memlock":                {warning},
		"process_numa_far":       {warning},
		"hardware_event":         {critical},
		"peer_subnet":            {warning},
		Fallback:                 {warning},
		"lossy_rail":             {info},
		"goodput_below_expected": {critical},
		"goodput_degraded":       {critical},
		"host_bottleneck":        {critical},
		"imbalance":              {warning},
		"shared_bottleneck":      {warning, critical},
		"rdma_on_lossy_priority": {info},
	}
}

func severitiesOf(id string, usual finding.Severity) []finding.Severity {
	if usual == "" { // a fault of a process or file: by what its value does
		return finding.Severities()
	}
	return append([]finding.Severity{usual}, otherSeverities()[id]...)
}

// Severities are those that findings of a running railscope may have, by check, the worst first.
func Severities() map[string][]finding.Severity {
	list := map[string][]finding.Severity{}
	for _, c := range Checks() {
		list[c.ID] = append(list[c.ID], severitiesOf(c.ID, c.Severity)...)
	}
	for _, c := range RoundChecks() {
		list[c.ID] = append(list[c.ID], severitiesOf(c.ID, c.Severity)...)
	}
	for _, c := range PeerChecks() {
		if len(list[c.ID]) > 0 { // a running railscope has it of rounds
			list[c.ID] = append(list[c.ID], severitiesOf(c.ID, c.Severity)...)
		}
	}
	for id, severities := range list {
		slices.SortFunc(severities, finding.Severity.Compare)
		list[id] = slices.Compact(severities)
	}
	return list
}
