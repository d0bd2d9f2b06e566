package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railscope/railscope/internal/sysfs"
)

// listMethod is the one method of the service that is called. Its answer says which devices the kubelet gave to which
// container, but neither a pod's UID nor a container's ID.
//
// Source: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
const listMethod = "/v1.PodResourcesLister/List"

// Bounds of an answer.
const (
	maxResponse = 4 << 20 // bytes, the default limit of gRPC
	maxDevices  = 1 << 16
)

// Device is a device that a container was given.
type Device struct {
	ID string // as the device plugin names it: a GPU's UUID, a MIG device's UUID; a replica's with ::n after it
	Name
}

// Devices returns the devices of all pods, from the kubelet at a socket, until ctx is done: then it fails with
// context.DeadlineExceeded, for [sysfs.ReasonTimeout]. Without a socket it fails with os.ErrNotExist.
func Devices(ctx context.Context, socket string) ([]Device, error) {
	body, err := call(ctx, socket)
	var devices []Device
	if err == nil {
		devices, err = decodeList(body)
	}
	if err == nil {
		return devices, nil
	}
	reason := sysfs.Reason(err)
	if errors.Is(err, context.DeadlineExceeded) {
		reason, err = sysfs.ReasonTimeout, fmt.Errorf("the kubelet does not answer: %w", err)
	}
	return nil, fmt.Errorf("pod-resources List: %w", &sysfs.Error{Path: socket, Reason: reason, Err: err})
}

// call makes the call and returns the message: a unary call of gRPC is an HTTP/2 POST of a message behind five bytes,
// with the status in the trailer, for which the standard library's client is enough.
func call(ctx context.Context, socket string) ([]byte, error) {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	// The request has no fields: not compressed, of length 0.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+listMethod,
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 5+maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(body) > 5+maxResponse {
		return nil, fmt.Errorf("an answer of more than %d bytes", maxResponse)
	}
	status, text := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" { // a failure without an answer has its status in the header
		status, text = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if status != "0" {
		if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
		return nil, fmt.Errorf("gRPC status %q: %.200q", status, text)
	}
	return message(body)
}

// message returns the one message in the body of an answer.
func message(body []byte) ([]byte, error) {
	switch {
	case len(body) < 5:
		return nil, fmt.Errorf("an answer of %d bytes", len(body))
	case body[0] != 0:
		return nil, errors.New("the answer is compressed, which was not requested")
	case uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5):
		return nil, fmt.Errorf("a message of %d bytes in an answer of %d", binary.BigEndian.Uint32(body[1:]), len(body))
	}
	return body[5:], nil
}

// decodeList reads a ListPodResourcesResponse: pod_resources = 1 {name = 1, namespace = 2, containers = 3 {name = 1,
// devices = 2 {resource_name = 1, device_ids = 2}}}. Fields of later versions are ignored.
func decodeList(b []byte) ([]Device, error) {
	var devices []Device
	var d decoder
	for pod := range d.values(b, 1) {
		owner := Name{Namespace: d.text(pod, 2), Pod: d.text(pod, 1)}
		for container := range d.values(pod, 3) {
			owner.Container = d.text(container, 1)
			for given := range d.values(container, 2) {
				for id := range d.values(given, 2) {
					if len(devices) == maxDevices {
						return nil, fmt.Errorf("more than %d devices", maxDevices)
					}
					if plausible(owner.Namespace, owner.Pod, owner.Container) {
						devices = append(devices, Device{ID: string(id), Name: owner})
					}
				}
			}
		}
	}
	return devices, d.err
}

// decoder keeps the first error of a message.
type decoder struct{ err error }

// values yields the values of one field of a message that have a length: strings, bytes, messages.
func (d *decoder) values(b []byte, want protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := b; len(rest) > 0 && d.err == nil; {
			field, typ, n := protowire.ConsumeField(rest)
			if n < 0 {
				d.err = protowire.ParseError(n)
				return
			}
			if field == want && typ == protowire.BytesType {
				_, _, tag := protowire.ConsumeTag(rest)
				if value, _ := protowire.ConsumeBytes(rest[tag:]); !yield(value) {
					return
				}
			}
			rest = rest[n:]
		}
	}
}

// text returns a string of a message: the last, if there are several.
func (d *decoder) text(b []byte, field protowire.Number) (s string) {
	for value := range d.values(b, field) {
		s = string(value)
	}
	return s
}
