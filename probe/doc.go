// Package probe measures what the rails to a peer can carry now: it asks the peer for a lease and writes to its scratch
// memory by RDMA over every rail, alone and striped; if RDMA fails, over TCP, with the reason. It answers the probes of
// others. A worker process does everything that touches hardware. The package knows neither collectors nor Prometheus.
package probe
