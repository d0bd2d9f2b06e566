// Package nccl reads the log files of NCCL jobs: which network a job chose,
// whether its adapters reach GPU memory, which transports its channels use, and its
// warnings.
//
//	files → tailer.go → parse.go: line → event → state.go → source.go Read → collector.Sample
//
// Only tailer.go knows how files are read as they grow, only parse.go what NCCL
// prints.
package nccl
