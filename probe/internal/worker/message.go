package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	ID       uint64          `json:"id"`
	Progress []int64         `json:"progress,omitempty"` // bytes completed so far, by rail, in the order of the request
	At       int64           `json:"at,omitempty"`       // CLOCK_MONOTONIC in ns, taken just before Progress
	Done     bool            `json:"done,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Failure  json.RawMessage `json:"failure,omitempty"`
}

// writeMessage writes a message by one call of Write.
func writeMessage(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// readMessage reads the next message; io.EOF at the end of the connection.
func readMessage(r *bufio.Reader, v any) error {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxMessage:
			return fmt.Errorf("a message of more than %d bytes", maxMessage)
		case err == nil:
			return json.Unmarshal(line, v)
		case errors.Is(err, io.EOF) && len(line) > 0:
			return io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
