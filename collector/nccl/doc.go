// Package nccl reads the log files of NCCL jobs: which network a job chose,
// whether its adapters reach GPU memory, how its channels run, and what it
// warns of.
//
//	files → follow.go → parse.go: line → event → state.go → source.go Read → collector.Sample
//
// Only follow.go knows how files are followed, only parse.go what NCCL prints.
package nccl
