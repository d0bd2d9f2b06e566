// Package sampler measures the real traffic between scrapes: the bytes of every rail every 100 ms, GPU memory every
// second, and the TCP traffic of the rails every 5 s. It keeps only counters and histograms that never step back, so
// that any number of scrapers can share them at any interval.
//
//	tick   → reader.go: readers → device.go: device.read → rail.Port.Bytes → account.go: account.observe
//	second → device.go: the port's state and limits; sampler.go: Sampler.second judges balance; gpu.go: GPU memory
//	5 s    → tcp.go: what is not RDMA → fallback.go: is that suspicious
//	scrape → Sampler.Snapshot copies everything and reads nothing
//	round  → Sampler.MeanTraffic: what rails and physical ports have carried over the last 5 s
//
// A read of a driver can hang and cannot be cancelled. One goroutine reads all devices. When it hangs, another one
// reads the other devices. So a hang costs the samples of its device, and delays the others once by 75 ms.
//
// Times are of the monotonic clock, read directly before and after each read.
package sampler
