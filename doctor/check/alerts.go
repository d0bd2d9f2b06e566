package check

// Alerts are the checks whose faults have an alert of their own, by its name: RailscopeFinding leaves them to it.
func Alerts() map[string]string {
	return map[string]string{
		"port_down":              "RailscopeRailDown",
		"netdev_down":            "RailscopeRailDown",
		"no_rails":               "RailscopeRailGone", // a node without RDMA hardware wakes nobody
		"rail_missing":           "RailscopeRailGone",
		"link_flapping":          "RailscopeRailFlapping",
		"gid_misbound":           "RailscopeGIDMisbound",
		"mtu_lost":               "RailscopeMTULost",
		"bond_member_down":       "RailscopeBondDegraded",
		"bond_lacp":              "RailscopeLACPNoPartner",
		"traffic_uneven":         "RailscopeRailImbalance",
		"pfc_storm":              "RailscopePFCStorm",
		"pfc_pause":              "RailscopePFCPause",
		"out_of_sequence":        "RailscopeOutOfSequence",
		"queue_pairs_failed":     "RailscopeQueuePairsDied",
		"rdma_idle_tcp_busy":     "RailscopeFallbackSuspected",
		"single_rail":            "RailscopeFallbackSuspected",
		"nccl_fallback":          "RailscopeNCCLFallback",
		"lossy_rail":             "RailscopeRetransmissions",
		"gpudirect":              "RailscopeGPUDirectLost",
		"source_failed":          "RailscopeSourceFailing",
		"config_refused":         "RailscopeConfigRefused",
		Fallback:                 "RailscopeProbeFallback",
		ProbeFailed:              "RailscopeProbeFailing",
		Corrupted:                "RailscopeVerificationFailed",
		"rail_failed":            "RailscopeProbeRailFailing",
		"goodput_below_expected": "RailscopeGoodputBelowExpected",
		"imbalance":              "RailscopeProbeImbalance",
	}
}
