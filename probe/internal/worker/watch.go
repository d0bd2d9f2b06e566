package worker

import (
	"context"
	"encoding/json"

	"github.com/railscope/railscope/internal/notice"
	"github.com/railscope/railscope/probe/internal/failure"
)

// DeviceEvent is an asynchronous event of a device.
type DeviceEvent struct {
	Device string `json:"device"`
	Port   int    `json:"port"` // 0: the whole device
	Event  string `json:"event"`
	Count  uint64 `json:"count"` // how often it occurred since the last message
	// Closed means that the device was let go: it failed or is being removed.
	Closed bool `json:"closed,omitempty"`
}

// Watch keeps devices open in the process, and calls on for each of their events, until ctx is done or no device is
// left. It ends the process: nothing stays open. A device that cannot be opened is reported as closed.
func (w *Worker) Watch(ctx context.Context, devices []string, on func(DeviceEvent)) error {
	p, err := w.process(true)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { w.release(p) })()
	body, err := json.Marshal(devices)
	if err == nil {
		err = writeMessage(p.conn, request{ID: 1, Op: opWatch, Args: body})
	}
	for err == nil {
		var res response
		err = readMessage(p.in, &res)
		switch {
		case err != nil:
		case res.Done:
			w.release(p)
			if res.Failure != nil {
				return res.Failure
			}
			return nil
		case res.Event != nil:
			on(*res.Event)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	p.wait() // a crash closes the socket shortly before the process is gone
	w.kill(p)
	return failure.New(failure.StageOpen, failure.WorkerCrashed, "the process that keeps devices open ended: %s",
		p.exitReason())
}

// watch opens devices and sends their events. It returns when all of them are closed. A driver that cannot take a
// device away from a program waits for it when the device is removed (ib_uverbs_remove_one), but announces that before:
// such a device is closed at once. So the announcements are received before the first device is opened.
func (s *server) watch(id uint64, devices []string) error {
	l, err := notice.Open(notice.Devices())
	if err != nil {
		return err
	}
	listening, stop := context.WithCancel(context.Background())
	defer stop()
	removed := make(chan string, 64) // character devices
	deaf := make(chan error, 1)
	go func() {
		deaf <- l.Receive(listening, func(m notice.Message) {
			e, ok := notice.ParseDevice(m.Data)
			switch {
			case m.Lost:
				removed <- "" // any of them
			case ok && e.Action == "remove" && e.Subsystem == "infiniband_verbs":
				removed <- e.Name
			}
		})
	}()
	return s.verbs.watch(s.library, devices, removed, deaf, func(e DeviceEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = writeMessage(s.out, response{ID: id, Event: &e}) // serve notices the end of the connection
	})
}
