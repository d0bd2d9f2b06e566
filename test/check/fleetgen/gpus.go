package fleetgen

import "strconv"

const memory = 80 << 30 // bytes of a GPU's memory

func (n *node) gpus() {
	n.gauge("gpudirect_supported", is(1))
	n.gauge("gpudirect_info", is(1), "mode", "peermem", "reason", "loaded")
	for g := range 8 {
		gpu := []string{"gpu", strconv.Itoa(g)}
		busy := func(t float64) float64 { return flag01(n.w.Load(n.n, 0, t) > 0.05) }
		free := func(t float64) float64 { return memory * n.w.GPUFree(n.n, g, t) }
		used := func(t float64) float64 { return memory - free(t) }
		n.gauge("gpu_memory_total_bytes", is(memory), gpu...)
		n.gauge("gpu_memory_used_bytes", used, gpu...)
		n.gauge("gpu_memory_free_bytes", free, gpu...)
		n.gauge("gpu_memory_source_info", is(1), append(gpu, "source", "nvml")...)
		n.gauge("gpu_memory_used_peak_bytes", func(t float64) float64 { return used(t) * 1.005 },
			append(gpu, "window", "1m")...)
		n.gauge("gpu_memory_used_peak_bytes", is(memory*0.86), append(gpu, "window", "start")...)
		n.gauge("gpu_bar1_memory_total_bytes", is(128<<30), gpu...)
		n.gauge("gpu_bar1_memory_used_bytes", is(1<<30), gpu...)
		n.gauge("gpu_utilization_ratio", func(t float64) float64 {
			return busy(t) * (0.96 + 0.03*n.w.Noise("gpu", n.n, g, int(t)))
		}, gpu...)
		n.gauge("gpu_power_watts", func(t float64) float64 {
			return 90 + busy(t)*(540+20*n.w.Noise("w", n.n, g, int(t)))
		}, gpu...)
		n.gauge("gpu_temperature_celsius", func(t float64) float64 { return 34 + busy(t)*(28+float64(g%4)) }, gpu...)
		n.gauge("gpu_clock_hertz", func(t float64) float64 {
			return 1.98e9 - flag01(g == 6)*busy(t)*2e8
		}, append(gpu, "clock", "sm")...)
		n.gauge("gpu_clocks_throttled", func(t float64) float64 {
			return flag01(g == 6) * busy(t)
		}, append(gpu, "reason", "sw_power_cap")...)
		for _, kind := range []string{"corrected", "uncorrected"} {
			n.counter("gpu_ecc_errors_total", is(0), append(gpu, "kind", kind)...)
		}
		n.counter("gpu_pcie_replays_total", is(0), gpu...)
		n.gauge("gpu_remapped_rows", is(0), append(gpu, "cause", "correctable")...)
		n.gauge("gpu_row_remap_pending", is(0), gpu...)
		n.gauge("gpu_row_remap_failure", is(0), gpu...)
	}
}
