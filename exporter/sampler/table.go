package sampler

import "github.com/railscope/railscope/collector"

type rows struct {
	collector.Table

	utilization, busy, saturated, tcp                       *collector.Metric // rows of a rail
	share, imbalance, imbalanced, anyBusy, active, fallback *collector.Metric // rows of all rails
	peak                                                    *collector.Metric // rows of a GPU
	peaks                                                   peakRows
	cost                                                    costRows
}

// peakRows are the rows of a rail's highest rates.
type peakRows struct{ highest, highestAt, lagging *collector.Metric }

// costRows are the rows of the sampler itself.
type costRows struct{ interval, samples, overruns, dropped, reading *collector.Metric }

// code is the package that measures the values.
const code = "collector/sampler/"

func newRows() *rows {
	r := &rows{Table: collector.Table{Source: "sampler"}}
	flow := r.Group(code+"account.go", "rail", "direction")
	r.utilization = flow.Row(collector.Histogram, "rail_utilization_ratio", "Utilization of the rail in every "+
		"sample: rate ÷ capacity over one --sample.interval. More than 1 where rails share a port or a PCIe link and "+
		"this rail used more than its share. Nothing is counted while the capacity is unknown.")
	r.busy = flow.Counter("rail_busy_seconds_total", "Time in samples above 1 % of the capacity.")
	r.saturated = flow.Counter("rail_saturated_seconds_total",
		"Time in samples above 95 % of the capacity: the rail was the bottleneck.")
	r.tcp = flow.Ref(code+"tcp.go").Counter("rail_tcp_bytes_total", "Bytes of the rail's interface that were not "+
		"RDMA, mostly TCP, since railscope started; for a bond, of all members together. Absent where no counter of "+
		"the driver is known to be without RDMA (docs/sampler.md).")

	r.peaks = newPeaks(flow)

	r.share = flow.Ref("internal/rail/balance.go").Gauge("rail_share_ratio", "Load ÷ capacity of the rail in the "+
		"real traffic of the last 10 s, relative to the best rail of its group (role, link layer and rate): 1 for "+
		"the best. Absent while no rail of a group of two is busy.")

	all := r.Group(code+"balance.go", "direction")
	r.imbalance = all.With("role").Ref("internal/rail/balance.go").Gauge("rails_imbalance_ratio", "1 − the smallest "+
		"share of a rail of the role in the real traffic of the last 10 s; a share is load ÷ capacity, relative to "+
		"the best rail of its group (role, link layer and rate). Of the worst group. 0.39 when one rail carries 61 % "+
		"of the others, 1 when one carries nothing. A rail that was up and is down carries nothing. Absent while no "+
		"group of at least two rails is busy.")
	r.imbalanced = all.Counter("rails_imbalanced_seconds_total", "Part of rails_busy_seconds_total in which "+
		"rails_imbalance_ratio of any role was above 0.25: a rail carried less than 75 % of the best of its group.")
	r.anyBusy = all.Ref(code+"balance.go").Counter("rails_busy_seconds_total", "Time in which at least one rail was "+
		"busy: above 1 % of its capacity. Absent until the capacity of a rail is known.")
	r.active = all.Gauge("rails_active",
		"Rails that were busy at any time in the last 10 s. Absent until the capacity of a rail is known.")
	r.fallback = r.Group("docs/sampler.md", "reason").Gauge("fallback_suspected", "1 while the traffic looks like a "+
		"fallback. rdma_idle_tcp_busy: GPUs compute, no rail carries RDMA and the rails' interfaces carry much other "+
		"traffic. single_rail: traffic was even and now one rail carries all of it. Absent while it cannot be judged.")

	r.peak = r.Group(code+"history.go", "gpu", "window").Gauge("gpu_memory_used_peak_bytes",
		"Peak of the GPU memory in use, checked every second: window=start since railscope started, window=1m in the "+
			"last minute.")

	device := r.Group(code+"device.go", "device")
	r.cost.interval = device.Gauge("sampler_interval_seconds", "Time between two samples of the "+
		"device: --sample.interval, or more where a read takes longer than 1/10 of that, or where the kernel caches "+
		"the counter for longer than half of it.")
	r.cost.samples = device.Counter("sampler_samples_total", "Samples taken of the device: one per rail and direction.")
	r.cost.overruns = device.Counter("sampler_overruns_total", "Samples that were due and not taken: the previous "+
		"one was late or slow, or the device could not be read. The next one is divided by the time that really "+
		"passed.")
	r.cost.dropped = r.Group(code+"account.go", "reason").Counter("sampler_dropped_samples_total",
		"Dropped samples, of all devices. reset: the counter went back. gap: the first sample after the device was "+
			"gone or not read for long. slow: the read took so long that the sample's time is unknown.")
	r.cost.reading = device.Counter("sampler_read_seconds_total", "Wall-clock time spent reading the device for "+
		"samples, waiting for its firmware included. Its CPU time is less, and part of process_cpu_seconds_total.")
	return r
}

func newPeaks(flow collector.Group) (r peakRows) {
	peaks := flow.With("window").Ref(code + "peak.go")
	r.highest = peaks.Gauge("rail_peak_bytes_per_second", "Highest rate of the rail's traffic in the last hour, "+
		"without the probe's: over 1 s, and over 100 ms where samples are that short. What a job has carried, the "+
		"rail can carry. Absent while the rail was not busy.")
	r.highestAt = peaks.Gauge("rail_peak_timestamp_seconds", "Time of rail_peak_bytes_per_second.")

	r.lagging = flow.With("of").Ref(code+"lag.go").Gauge("rail_lagging_bytes_per_second", "Highest rates of a rail "+
		"that carries as much as its equals for the same jobs, but never faster than half of their highest rate: "+
		"of=rail its own, of=equals the median of theirs. Absent otherwise.")
	return r
}
