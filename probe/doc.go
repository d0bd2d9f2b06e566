// Package probe finds out what the rails to a peer could carry right now: it asks the peer for a lease, writes to its
// scratch memory by RDMA over every rail, alone and striped, and says how fast, how even and how late that was; and
// when RDMA cannot be had, by TCP and why. It answers the probes of others likewise. What touches hardware runs in a
// worker process. It knows neither collectors nor Prometheus.
package probe
