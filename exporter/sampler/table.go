package sampler

import "github.com/railscope/railscope/collector"

// rows are the metrics of the sampler.
type rows struct {
	// Of a rail.
	utilization, busy, saturated, tcp, linkChanges, linkLast *collector.Metric
	// Of all rails.
	imbalance, imbalanced, anyBusy, active, fallback *collector.Metric
	// Of bonds and GPUs.
	memberChanges, memberLast, activeChanges, activeLast, peak *collector.Metric
	// Of the sampler.
	interval, samples, overruns, dropped, reading *collector.Metric
}

func newRows() rows {
	const dir, kernelBonds = "collector/sampler/", "Documentation/networking/bonding.rst"
	const carrier = "Documentation/ABI/testing/sysfs-class-net, carrier_changes"
	row := func(kind collector.Kind, name, ref, help string, labels ...string) *collector.Metric {
		return &collector.Metric{Name: name, Kind: kind, Help: help, Ref: ref, Labels: labels}
	}
	const counter, gauge = collector.Counter, collector.Gauge
	const rail, direction, bond, device = "rail", "direction", "bond", "device"
	return rows{
		utilization: row(collector.Histogram, "rail_utilization_ratio", dir+"tally.go", "Every sample of the rail ÷ its capacity: how full it was in each --sample.interval. More than 1 where rails share a port or a PCIe link and this one used more than its part. Nothing is counted while the capacity is unknown.", rail, direction),
		busy:        row(counter, "rail_busy_seconds_total", dir+"tally.go", "Time in samples of more than 1 % of the capacity.", rail, direction),
		saturated:   row(counter, "rail_saturated_seconds_total", dir+"tally.go", "Time in samples of more than 95 % of the capacity: the rail was what traffic waited for.", rail, direction),
		tcp:         row(counter, "rail_tcp_bytes_total", dir+"tcp.go", "Unicast bytes that the rail's interface carried and that were not RDMA, mostly TCP, since railscope started; of a bond, all members together. Only mlx5 counts them apart: absent elsewhere.", rail, direction),
		linkChanges: row(counter, "rail_link_changes_total", carrier, "Times that the rail's link came or went, by the port's state and the kernel's count of carrier changes, since railscope started; up and down are one each.", rail),
		linkLast:    row(gauge, "rail_link_last_change_timestamp_seconds", carrier, "When the last of them was noticed, within a second, Unix time; absent when there was none.", rail),

		imbalance:  row(gauge, "rails_imbalance_ratio", "internal/rail/balance.go", "1 − the smallest share of a rail in the real traffic of the last 10 s, share being load ÷ capacity relative to the best rail of its group (link layer and rate); of the worst group. 0.39 when one carries 61 % of the others, 1 when one carries nothing. A rail that was up and is down carries nothing. Absent while no group of two rails or more is busy.", direction),
		imbalanced: row(counter, "rails_imbalanced_seconds_total", dir+"balance.go", "Of rails_busy_seconds_total, time in which rails_imbalance_ratio was more than 0.25: a rail carried less than 75 % of what the best of its group did.", direction),
		anyBusy:    row(counter, "rails_busy_seconds_total", dir+"union.go", "Time in which at least one rail was busy, with more than 1 % of its capacity. Absent as long as the capacity of no rail has been known.", direction),
		active:     row(gauge, "rails_active", dir+"balance.go", "Rails that were busy at any time in the last 10 s. Absent as long as the capacity of no rail has been known.", direction),
		fallback:   row(gauge, "fallback_suspected", "docs/sampler.md", "1 while the traffic looks as if it had fallen back: rdma_idle_tcp_busy, GPUs compute, no rail carries RDMA and their interfaces carry much else; single_rail, the rails were even and one carries all. Absent while it cannot be judged.", "reason"),

		memberChanges: row(counter, "bond_member_link_changes_total", kernelBonds, "Times that the bond's member came or went, by the bond's link monitoring and the kernel's count of carrier changes, since railscope started.", bond, "member"),
		memberLast:    row(gauge, "bond_member_link_last_change_timestamp_seconds", kernelBonds, "When the last of them was noticed, within a second, Unix time; absent when there was none.", bond, "member"),
		activeChanges: row(counter, "bond_active_member_changes_total", kernelBonds, "Times that another member became the active one, looked at every second, since railscope started.", bond),
		activeLast:    row(gauge, "bond_active_member_last_change_timestamp_seconds", kernelBonds, "When the last of them was noticed, within a second, Unix time; absent when there was none.", bond),
		peak:          row(gauge, "gpu_memory_used_peak_bytes", dir+"gpu.go", "Most memory that the GPU had in use, looked at every second: window=start since railscope started, window=1m in the last minute.", "gpu", "window"),

		interval: row(gauge, "sampler_interval_seconds", dir+"pace.go", "Time between two samples of the device: --sample.interval, or more where a read takes longer than a tenth of that, or the kernel answers from a cache for longer than half of it.", device),
		samples:  row(counter, "sampler_samples_total", dir+"device.go", "Samples taken of the device: one for each direction of each rail.", device),
		overruns: row(counter, "sampler_overruns_total", dir+"device.go", "Times that a sample was due and none was taken, because the one before was late or took long, or the device could not be read. The next one is normalised by the time that really passed.", device),
		dropped:  row(counter, "sampler_dropped_samples_total", dir+"account.go", "Samples that tell nothing: the first after the counter stepped back (reset), or after the device was gone or had not been read for long (gap); or what took so long to read that nobody knows of which moment it tells (slow). Of all devices.", "reason"),
		reading:  row(counter, "sampler_read_seconds_total", dir+"device.go", "Wall-clock time that reading the device for samples took, waiting for its firmware included: what the sampler costs the device. Its processor time is less, and part of process_cpu_seconds_total.", device),
	}
}

func (r *rows) all() []*collector.Metric {
	return []*collector.Metric{
		r.utilization, r.busy, r.saturated, r.tcp, r.linkChanges, r.linkLast,
		r.imbalance, r.imbalanced, r.anyBusy, r.active, r.fallback,
		r.memberChanges, r.memberLast, r.activeChanges, r.activeLast, r.peak,
		r.interval, r.samples, r.overruns, r.dropped, r.reading,
	}
}
