package notice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// datagram returns messages with netlink headers (struct nlmsghdr: length, type, flags, sequence, port).
func datagram(messages ...Message) (b []byte) {
	for _, m := range messages {
		head := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(m.Data)))
		head = append(binary.NativeEndian.AppendUint16(head, m.Type), make([]byte, 10)...)
		b = append(append(b, head...), m.Data...)
		b = append(b, make([]byte, (4-len(b)%4)%4)...)
	}
	return b
}

func TestSplit(t *testing.T) {
	a, b := Message{Type: 16, Data: []byte("abcde")}, Message{Type: 17, Data: []byte{}}
	lost := Message{Lost: true}
	for name, test := range map[string]struct {
		data []byte
		want []Message
	}{
		"empty":      {nil, nil},
		"two":        {datagram(a, b), []Message{a, b}},
		"one cut":    {datagram(a, b)[:len(datagram(a))+8], []Message{a, lost}},
		"too long":   {binary.NativeEndian.AppendUint32(nil, 17), []Message{lost}},
		"length 0":   {make([]byte, 16), []Message{lost}},
		"no padding": {datagram(a)[:16+5], []Message{a}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []Message
			split(test.data, func(m Message) {
				m.Data = bytes.Clone(m.Data)
				got = append(got, m)
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// FuzzSplit: splitting any datagram ends.
func FuzzSplit(f *testing.F) {
	f.Add(datagram(Message{Type: 1, Data: []byte("x")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		split(b, func(Message) { n++ })
		if n > len(b)/unix.SizeofNlMsghdr+1 {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
	})
}

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]DeviceEvent{
		"add@/devices/pci0000:00/0000:00:02.0/infiniband/mlx5_0\x00ACTION=add\x00" +
			"DEVPATH=/devices/pci0000:00/0000:00:02.0/infiniband/mlx5_0\x00SUBSYSTEM=infiniband\x00" +
			"NAME=mlx5_0\x00SEQNUM=7\x00": {
			Action: "add", Subsystem: "infiniband", Name: "mlx5_0"},
		"move@/devices/x/infiniband/b\x00ACTION=move\x00DEVPATH=/devices/x/infiniband/b\x00SUBSYSTEM=infiniband\x00" +
			"DEVPATH_OLD=/devices/x/infiniband/a\x00SEQNUM=8": {Action: "move", Subsystem: "infiniband", Name: "b", Old: "a"},
		"libudev\x00\xfe\xed\xca\xfe":          {},
		"add@/devices/x\x00ACTION=add\x00":     {},
		"":                                     {},
		"ACTION=add\x00DEVPATH=x\x00@\x00\x00": {},
	} {
		if e, ok := ParseDevice([]byte(text)); ok != (want != DeviceEvent{}) || ok && e != want {
			t.Errorf("%q: %+v, %v", text, e, ok)
		}
	}
}

// TestListen: listening ends with its context, and a refusal of the kernel is an error.
func TestListen(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Listen(ctx, Routes(), func(Message) {}) }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	err := Listen(t.Context(), Group{name: "none", protocol: 31}, nil)
	if !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Error(err)
	}
}
