package kubelet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/railscope/railscope/internal/sysfs"
)

// listMethod is the one method of the service that is called. Its answer says
// which devices the kubelet gave to which container; it does not say a pod's
// UID nor a container's ID.
//
// Source: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
const listMethod = "/v1.PodResourcesLister/List"

// maxResponse is the most that is read of an answer: the limit that gRPC has by
// default.
const maxResponse = 4 << 20

// maxDevices bounds what an answer may hold.
const maxDevices = 1 << 16

// Device is a device that a container was given.
type Device struct {
	Resource string // as the pod asks for it, nvidia.com/gpu
	ID       string // as the device plugin names it: a GPU's UUID, a MIG device's UUID; a replica's with ::n after it
	Name
}

// Client asks a kubelet which container has which device. Safe for concurrent
// use.
//
// A unary call of gRPC is an HTTP/2 POST of a message behind five bytes, with
// the status in the trailer: the HTTP client of the standard library makes one,
// and the modules of gRPC and of the kubelet are not needed for it.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the socket at path; it connects when asked.
func NewClient(path string) *Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &Client{path, &http.Client{Transport: &http.Transport{
		Protocols:         protocols,
		DisableKeepAlives: true, // a question now and then: no connection stays open for it
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}}
}

// Devices returns the devices of all pods, until ctx is done: then it fails
// with context.DeadlineExceeded, for [sysfs.ReasonTimeout]. Where there is no
// socket it fails with os.ErrNotExist.
func (c *Client) Devices(ctx context.Context) ([]Device, error) {
	body, err := c.call(ctx)
	var devices []Device
	if err == nil {
		devices, err = decodeList(body)
	}
	if err == nil {
		return devices, nil
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // its URL is no place
		err = e.Err
	}
	reason := sysfs.Reason(err)
	if errors.Is(err, context.DeadlineExceeded) {
		reason, err = sysfs.ReasonTimeout, fmt.Errorf("the kubelet does not answer: %w", err)
	}
	return nil, fmt.Errorf("pod-resources List: %w", &sysfs.Error{Path: c.path, Reason: reason, Err: err})
}

// call makes the call and returns the message of the answer.
func (c *Client) call(ctx context.Context) ([]byte, error) {
	// The request has no fields: not compressed, of length 0.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+listMethod,
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.http.Do(req)
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

// message takes the one message out of the body of an answer.
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

// decodeList reads a ListPodResourcesResponse: pod_resources = 1 {name = 1,
// namespace = 2, containers = 3 {name = 1, devices = 2 {resource_name = 1,
// device_ids = 2}}}. What later versions add is passed over.
func decodeList(b []byte) ([]Device, error) {
	var devices []Device
	err := messages(b, 1, func(pod []byte) error {
		var owner Name
		if err := texts(pod, map[protowire.Number]*string{1: &owner.Pod, 2: &owner.Namespace}); err != nil {
			return err
		}
		return messages(pod, 3, func(container []byte) error {
			if err := texts(container, map[protowire.Number]*string{1: &owner.Container}); err != nil {
				return err
			}
			return messages(container, 2, func(given []byte) error {
				var resource string
				if err := texts(given, map[protowire.Number]*string{1: &resource}); err != nil {
					return err
				}
				return messages(given, 2, func(id []byte) error {
					if len(devices) == maxDevices {
						return fmt.Errorf("more than %d devices", maxDevices)
					}
					if plausible(owner.Namespace, owner.Pod, owner.Container) {
						devices = append(devices, Device{Resource: resource, ID: string(id), Name: owner})
					}
					return nil
				})
			})
		})
	})
	return devices, err
}

// texts fills in the strings of a message.
func texts(b []byte, fields map[protowire.Number]*string) error {
	for _, to := range fields {
		*to = ""
	}
	return values(b, func(field protowire.Number, value []byte) error {
		if to := fields[field]; to != nil {
			*to = string(value)
		}
		return nil
	})
}

// messages calls fn for each value of one field of a message.
func messages(b []byte, field protowire.Number, fn func([]byte) error) error {
	return values(b, func(f protowire.Number, value []byte) error {
		if f != field {
			return nil
		}
		return fn(value)
	})
}

// values calls fn for each field of a message that has a length: strings, bytes,
// messages.
func values(b []byte, fn func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		field, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, typ, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := fn(field, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
