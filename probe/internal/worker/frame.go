package worker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// maxFrame bounds one message: the longest is a list of latencies.
const maxFrame = 4 << 20

// request is what the exporter sends.
type request struct {
	ID   uint64          `json:"id"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// response is what the worker sends: any number of progress messages for a
// request, and one that ends it.
type response struct {
	ID       uint64  `json:"id"`
	Progress []int64 `json:"progress,omitempty"` // bytes completed so far, by rail, in the order of the request
	// when that was looked at, not later than it was so: CLOCK_MONOTONIC, ns
	At      int64           `json:"at,omitempty"`
	Done    bool            `json:"done,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Failure json.RawMessage `json:"failure,omitempty"`
}

// writeFrame writes v as JSON behind its length, 4 bytes, big end first. One
// call to Write, so that frames of different writers would not mix.
func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("a message of %d bytes: the most is %d", len(body), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(frame, body...))
	return err
}

// readFrame reads what writeFrame wrote. A length over maxFrame is refused
// before anything of that size is allocated; io.EOF means that the other side
// hung up between two frames.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("a message of %d bytes: the most is %d", n, maxFrame)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return err
	}
	if len(body) < int(n) {
		return io.ErrUnexpectedEOF
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("a message that is no JSON: %w", err)
	}
	return nil
}
