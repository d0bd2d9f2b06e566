package worker

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"

	"github.com/railscope/railscope/probe/internal/failure"
)

// maxMessage bounds one message: the longest is a list of latencies.
const maxMessage = 4 << 20

// request is what the exporter sends: one line of JSON, as every message.
type request struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// response is what the worker sends: any number of progress messages for a request, and one that ends it.
type response struct {
	ID       uint64           `json:"id"`
	Progress []int64          `json:"progress,omitempty"` // bytes completed so far, by rail, in the order of the request
	At       int64            `json:"at,omitempty"`       // CLOCK_MONOTONIC in ns, taken just before Progress
	Done     bool             `json:"done,omitempty"`
	Result   json.RawMessage  `json:"result,omitempty"`
	Failure  *failure.Failure `json:"failure,omitempty"`
}

// writeMessage writes a message by one call of Write.
func writeMessage(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// newMessages reads messages from a connection.
func newMessages(r io.Reader) *bufio.Scanner {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxMessage)
	return in
}

// readMessage reads the next message; io.EOF at the end of the connection.
func readMessage(in *bufio.Scanner, v any) error {
	if !in.Scan() {
		return cmp.Or(in.Err(), io.EOF)
	}
	return json.Unmarshal(in.Bytes(), v)
}
