package main

// workerCommand is the command of the process that touches libibverbs. It is not for users, so the parser does not know
// it.
const workerCommand = "probe-worker"

// isWorker reports whether this process was started as the probe's worker.
func isWorker(args []string) bool { return len(args) == 1 && args[0] == workerCommand }
