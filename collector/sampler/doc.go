// Package sampler measures what the real traffic does between scrapes: the bytes of every rail every 100 ms, GPU memory
// every second, and what of a rail's traffic is not RDMA every five. It keeps only what any number of scrapers at any
// interval can share: counters and histograms that never go back.
//
//	tick   → reader.go: readers → device.go: device.read → rail.Port.Bytes → account.go: account.observe adds them up
//	second → device.go: the port's state and limits; sampler.go: Sampler.second judges balance; gpu.go: GPU memory
//	5 s    → tcp.go: what is not RDMA → fallback.go: is that suspicious
//	scrape → Sampler.Snapshot copies all of it; nothing is read
//
// A read of a driver can hang and cannot be cancelled. One goroutine reads all devices; when it is stuck in one,
// another reads the rest, and the stuck one keeps its device. So a hang costs its own device's series their growth,
// and the others one delay of 75 ms.
//
// Times are of the monotonic clock, read directly before and after each read.
package sampler
