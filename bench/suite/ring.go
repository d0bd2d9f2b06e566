package suite

// Ring is an all-reduce over a ring of nodes, derived from the rates of a burst. Rates are bytes per second, times
// seconds; nil is not measured.
type Ring struct {
	Bytes   int64        `json:"bytes"`
	Members []RingMember `json:"members"`
	Burst   float64      `json:"burst_seconds"`

	Measured  *float64 `json:"seconds"`
	Predicted *float64 `json:"predicted_seconds"`
	TCP       *float64 `json:"tcp_seconds"`
	Bus       *float64 `json:"bus_bytes_per_second"`
	Ratio     *float64 `json:"measured_of_predicted_ratio"`
	Meaning   string   `json:"meaning"` // what Ratio says
	StepTime  *float64 `json:"step_seconds"`
	Share     *float64 `json:"step_ratio"` // share of a step that synchronisation by RDMA takes
	TCPShare  *float64 `json:"tcp_step_ratio"`
}

// RingMember is what a node carried to its successor.
type RingMember struct {
	Node      string   `json:"node"`
	Successor string   `json:"successor"`
	Rails     int      `json:"rails"` // rails that carry
	AllRails  int      `json:"all_rails"`
	Alone     *float64 `json:"alone_bytes_per_second"`
	Together  *float64 `json:"together_bytes_per_second"`
	TCP       *float64 `json:"tcp_bytes_per_second"`
	Failure   *Failure `json:"failure"`
	OfRail    *Failure `json:"rail_failure"`
}

// Failure is why something was not measured.
type Failure struct {
	Rail   *string `json:"rail"`
	Stage  string  `json:"stage"`
	Reason string  `json:"reason"`
	Detail *string `json:"detail"`
}
