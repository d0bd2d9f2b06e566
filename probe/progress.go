package probe

// Progress is how far a stage of a round has come.
type Progress struct {
	Stage Stage
	Rail  string // empty: all of them
	Done  int64  // bytes; of the latency stage, writes
	Total int64  // 0: the stage has no length
}
