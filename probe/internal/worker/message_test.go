package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// message returns a line on the wire.
func message(body string) []byte { return []byte(body + "\n") }

// TestMessages: written messages are read in order, even if they arrive in small pieces.
func TestMessages(t *testing.T) {
	var wire bytes.Buffer
	want := []request{{ID: 1, Op: opInfo}, {ID: 1<<64 - 1, Op: opOpen, Args: json.RawMessage(`{"rails":null}`)},
		{Op: strings.Repeat("x\n", 1<<16)}} // longer than the default limit of a bufio.Scanner
	for _, r := range want {
		if err := writeMessage(&wire, r); err != nil {
			t.Fatal(err)
		}
	}
	in := newMessages(iotest.OneByteReader(&wire))
	for _, r := range want {
		var got request
		if err := readMessage(in, &got); err != nil || got.ID != r.ID || got.Op != r.Op ||
			string(got.Args) != string(r.Args) {
			t.Fatalf("%v, id %d", err, got.ID)
		}
	}
	var none request
	if err := readMessage(in, &none); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestBadMessages: an invalid message is refused with another error than the end of the input.
func TestBadMessages(t *testing.T) {
	for why, in := range map[string][]byte{
		"half a message": message(`{"id":1}`)[:6],
		"no message":     message(""),
		"no JSON":        message("x"),
		"two messages":   message(`{} {}`),
		"another type":   message(`{"id":"one"}`),
		"a negative id":  message(`{"id":-1}`),
		"too long":       message(`{"op":"` + strings.Repeat("x", maxMessage) + `"}`),
		"endless":        bytes.Repeat([]byte("x"), maxMessage+1),
	} {
		var r request
		if err := readMessage(newMessages(bytes.NewReader(in)), &r); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// FuzzMessages: any message that is read can be written and read again.
func FuzzMessages(f *testing.F) {
	f.Add(message(`{"id":1,"op":"info"}`))
	f.Add(message(`{"id":1,"op":"open","args":{"rails":[]}}`))
	f.Add([]byte("{"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		var got request
		if readMessage(newMessages(bytes.NewReader(in)), &got) != nil {
			return
		}
		var wire bytes.Buffer
		if err := writeMessage(&wire, got); err != nil {
			t.Fatal(err)
		}
		var again request
		if err := readMessage(newMessages(&wire), &again); err != nil || again.ID != got.ID || again.Op != got.Op {
			t.Errorf("%+v came back as %+v: %v", got, again, err)
		}
	})
}

// inTurn sends a server its messages one by one, each after the answers to the previous ones, and counts the answers.
type inTurn struct {
	t     *testing.T
	lines [][]byte // lines left to read; the first may be partly read
	asked []int    // number of requests before each line
	read  int

	mu       sync.Mutex // protects all following fields
	answered int
	more     sync.Cond
}

func newInTurn(t *testing.T, in []byte) *inTurn {
	s := &inTurn{t: t}
	s.more.L = &s.mu
	asked := 0
	for line := range bytes.Lines(in) {
		s.lines, s.asked = append(s.lines, line), append(s.asked, asked)
		var r request
		if json.Unmarshal(line, &r) == nil && r.Op != opCancel {
			asked++
		}
	}
	s.lines, s.asked = append(s.lines, nil), append(s.asked, asked) // the end follows all answers
	return s
}

func (s *inTurn) Read(p []byte) (int, error) {
	if s.read == len(s.lines) {
		return 0, io.EOF
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	late := time.AfterFunc(30*time.Second, func() { panic("the server does not answer") })
	for s.answered < s.asked[s.read] {
		s.more.Wait()
	}
	late.Stop()
	n := copy(p, s.lines[s.read])
	s.lines[s.read] = s.lines[s.read][n:]
	if len(s.lines[s.read]) == 0 {
		s.read++
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *inTurn) Write(p []byte) (int, error) {
	var res response
	if err := json.Unmarshal(p, &res); err != nil {
		s.t.Errorf("an answer that cannot be read: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if res.Done {
		s.answered++
		s.more.Broadcast()
	}
	return len(p), nil
}

// tame reports whether requests stay on this machine and are small.
func tame(in []byte) bool {
	for line := range bytes.Lines(in) {
		var r request
		if json.Unmarshal(line, &r) != nil {
			return true
		}
		var o OpenArgs
		var c ConnectArgs
		_ = json.Unmarshal(r.Args, &o)
		_ = json.Unmarshal(r.Args, &c)
		if o.Buffer > 1<<20 && o.Buffer <= MaxMemory {
			return false
		}
		for _, rail := range c.Rails {
			if rail.TCP.IsValid() && !rail.TCP.Addr().IsLoopback() {
				return false
			}
		}
	}
	return true
}

// FuzzServe: every request is answered, in any order, without libibverbs.
func FuzzServe(f *testing.F) {
	const key = `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`
	all := func(bodies ...string) (wire []byte) {
		for _, b := range bodies {
			wire = append(wire, message(b)...)
		}
		return wire
	}
	target := `{"id":1,"op":"open","args":{"transport":"tcp","target":true,"buffer":65536,"depth":1,"queue_pairs":1,` +
		`"key":` + key + `,"rails":[{"name":"0","local":"127.0.0.1"}]}}`
	asker := strings.Replace(target, `"target":true,`, "", 1)
	f.Add(all(`{"id":1,"op":"info"}`,
		`{"id":2,"op":"open","args":{"transport":"rdma","rails":[{"name":"0","device":"mlx5_0","port":1}],`+
			`"buffer":4096,"depth":1,"queue_pairs":1}}`))
	f.Add(all(target,
		`{"id":2,"op":"verify","args":{"seed":1,"pass":67,"rails":[{"rail":"0","chunk":4096,"writes":[17]}],"stop":["1"]}}`,
		`{"id":2,"op":"verify","args":{"seed":2,"pass":1,"rails":[{"rail":"0","chunk":1,"writes":[9223372036854775807]}]}}`,
		`{"id":3,"op":"close"}`))
	f.Add(all(asker, `{"id":2,"op":"connect","args":{"rails":[{"name":"0","tcp":"127.0.0.1:1"},{"name":"1"}]}}`,
		`{"id":3,"op":"burst","args":{"loads":[{"rail":"0","chunk":4096,"cap":65536,"depth":1}],"slow":1,"deadline":1000000}}`,
		`{"id":4,"op":"latency","args":{"rail":"0","n":3,"limit":1}}`, `{"id":5,"op":"tcp_info"}`,
		`{"id":6,"op":"cancel"}`, `{"id":6,"op":"close"}`))
	f.Add(all(`{"id":9,"op":"cancel"}`, `{"id":9,"op":"burst"}`, `{"id":9,"op":"verify","args":7}`,
		`{"op":"open","args":{"rails":[{},{}],"buffer":1e99}}`))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if !tame(in) {
			t.Skip("it would leave this machine, or take much memory")
		}
		turn := newInTurn(t, in)
		s := &server{library: "/nonexistent/libibverbs.so.1", out: turn}
		if err := s.serve(turn); err == nil {
			t.Error("the end of the connection is no error")
		}
		if _, err := s.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestServeOneAtATime: a request that does not wait for the previous answer ends the connection.
func TestServeOneAtATime(t *testing.T) {
	in := bytes.Repeat(message(`{"id":1,"op":"info"}`), 50)
	out := &slow{}
	s := &server{library: "/nonexistent/libibverbs.so.1", out: out}
	if err := s.serve(bytes.NewReader(in)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("50 requests at once: %v", err)
	}
}

// slow needs 10 ms for each answer.
type slow struct{}

func (*slow) Write(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return len(p), nil
}
