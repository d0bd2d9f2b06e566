package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railscope/railscope/internal/sysfs"
)

// kubelet is a gRPC server at the level of HTTP/2: it answers with the given bytes and trailer.
func kubelet(t *testing.T, answer http.HandlerFunc) (socket string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: answer, Protocols: protocols}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return path
}

// msg is a field of a message: its number, and its bytes.
func msg(field protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), bytes.Join(parts, nil))
}
func str(field protowire.Number, s string) []byte { return msg(field, []byte(s)) }
func num(field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v)
}
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// response is an answer with two pods, and with fields of newer kubelets.
func response() []byte {
	topology := msg(3, msg(1, num(1, 1)))
	return bytes.Join([][]byte{
		msg(1, str(1, "train-0"), str(2, "default"),
			msg(3, str(1, "trainer"),
				msg(2, str(1, "nvidia.com/gpu"), str(2, "GPU-1"), str(2, "GPU-2"), topology),
				msg(2, str(1, "rdma/roce"), str(2, "roce-7")),
				num(3, 12), // a CPU
				msg(5, str(2, "claim"), str(3, "default"))),
			msg(3, str(1, "sidecar"))),
		msg(1, msg(3, msg(2, str(2, "MIG-9"), str(1, "nvidia.com/mig-1g.18gb")), str(1, "a")), str(2, "infer"),
			str(1, "b")), // fields in another order
		msg(9, []byte("of a later kubelet")),
	}, nil)
}

func ok(message []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.Write(frame(message))
		w.Header().Set("Grpc-Status", "0")
	}
}

func TestDevices(t *testing.T) {
	socket := kubelet(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 || r.Method != "POST" || r.URL.Path != "/v1.PodResourcesLister/List" ||
			r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" {
			t.Errorf("the request is %s %s %v %v", r.Proto, r.Method, r.URL, r.Header)
		}
		if diff := cmp.Diff([]byte{0, 0, 0, 0, 0}, body); diff != "" || err != nil {
			t.Error(err, diff)
		}
		ok(response())(w, r)
	})
	trainer := Name{"default", "train-0", "trainer"}
	want := []Device{
		{"GPU-1", trainer},
		{"GPU-2", trainer},
		{"roce-7", trainer},
		{"MIG-9", Name{"infer", "b", "a"}},
	}
	for range 2 {
		got, err := Devices(t.Context(), socket)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
}

func TestDevicesFails(t *testing.T) {
	status := func(code, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", code)
			w.Header().Set("Grpc-Message", text)
		}
	}
	raw := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Grpc-Status")
			w.Write(b)
			w.Header().Set("Grpc-Status", "0")
		}
	}
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"not implemented", status("12", "unknown service v1.PodResourcesLister%21"),
			`gRPC status "12": "unknown service v1.PodResourcesLister!"`},
		{"no status", func(http.ResponseWriter, *http.Request) {}, `gRPC status ""`},
		{"no gRPC", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "404"},
		{"an empty answer", raw(nil), "an answer of 0 bytes"},
		{"compressed", raw(append([]byte{1}, frame(nil)[1:]...)), "compressed"},
		{"cut off", raw(frame(response())[:40]), "in an answer of 40"},
		{"rubbish", ok([]byte{0xff}), "pod-resources List: "},
		{"too long", raw(frame(make([]byte, maxResponse+1))), "more than 4194304 bytes"},
		{"too many", ok(bytes.Repeat(msg(1, str(1, "p"), str(2, "n"), msg(3, str(1, "c"), msg(2, str(2, "d")))),
			maxDevices+1)), "more than 65536 devices"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Devices(t.Context(), kubelet(t, tt.answer))
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("%d devices, %v; want %s", len(got), err, tt.want)
			}
		})
	}
	if _, err := Devices(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a socket: %v", err)
	}
}

// TestDevicesHangs: a kubelet that accepts and never answers costs the deadline.
func TestDevicesHangs(t *testing.T) {
	stop := make(chan struct{})
	socket := kubelet(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Devices(ctx, socket)
	if !errors.Is(err, context.DeadlineExceeded) || sysfs.Reason(err) != sysfs.ReasonTimeout ||
		!strings.Contains(err.Error(), "kubelet.sock: the kubelet does not answer") {
		t.Error(err)
	}
}

func FuzzDecodeList(f *testing.F) {
	f.Add(response())
	f.Add(frame(response()))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		if inner, err := message(b); err == nil && len(inner) != len(b)-5 {
			t.Fatalf("a message of %d bytes in %d", len(inner), len(b))
		}
		devices, err := decodeList(b)
		if len(devices) > len(b)/2 {
			t.Fatalf("%d devices of %d bytes, %v", len(devices), len(b), err)
		}
		for _, d := range devices {
			if !plausible(d.Namespace, d.Pod, d.Container) {
				t.Fatalf("%+v", d)
			}
		}
	})
}
