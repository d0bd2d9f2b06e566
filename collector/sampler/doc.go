// Package sampler looks at what the real traffic does between scrapes: the bytes
// of every rail every 100 ms, links, bonds and GPU memory every second, and what
// of a rail's traffic is not RDMA every five. It disturbs nothing, and it keeps
// only what any number of scrapers at any interval can share: counters and
// histograms that never go back.
//
//	tick   → device.go reads two files of each rail → account.go adds them up
//	second → look.go, bond.go, gpu.go: links, bonds, memory; sampler.go: balance
//	5 s    → tcp.go: what is not RDMA → fallback.go: is that suspicious
//	scrape → Sampler.Snapshot copies all of it; nothing is read
//
// A read of a driver can hang and cannot be cancelled, so each device has a
// goroutine of its own for ticks and one for looks. One that is stuck costs its
// own device's series their growth, and nothing else.
//
// Times are of the monotonic clock, read directly before and after each read;
// only when a link changed is told as Unix time.
package sampler
