package rtnl

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestList: the listing has every interface and address that Go's own has.
func TestList(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Skip(err)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Skip(err)
	}
	var got, want []string
	for _, c := range list {
		if c.Interface != nil {
			got = append(got, fmt.Sprint(c.Interface.Index, " ", c.Interface.Name))
		} else {
			got = append(got, fmt.Sprint(c.Address.Index, " ", c.Address.Prefix))
		}
	}
	for _, i := range interfaces {
		want = append(want, fmt.Sprint(i.Index, " ", i.Name))
		addresses, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			want = append(want, fmt.Sprint(i.Index, " ", a))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestParseChangeMalformed: what the kernel does not send is refused. TestEvents of collector/events has what it sends.
func TestParseChangeMalformed(t *testing.T) {
	link := make([]byte, unix.SizeofIfInfomsg)
	for _, test := range []struct {
		kind uint16
		data []byte
	}{
		{unix.RTM_NEWLINK, nil},
		{unix.RTM_NEWLINK, link}, // without a name
		{unix.RTM_NEWLINK, append(link, 3, 0, 0, 0)},
		{unix.RTM_NEWADDR, make([]byte, unix.SizeofIfAddrmsg)}, // without an address
		{unix.RTM_NEWADDR, append(make([]byte, unix.SizeofIfAddrmsg), 7, 0, 1, 0, 1, 2, 3)},
		{unix.RTM_NEWADDR, append([]byte{2, 99, 0, 0, 0, 0, 0, 0}, 8, 0, 1, 0, 1, 2, 3, 4)}, // 99 bits of a prefix
		{unix.RTM_NEWROUTE, link},
	} {
		if c, ok := ParseChange(test.kind, test.data); ok {
			t.Errorf("%d %v: %+v", test.kind, test.data, c)
		}
	}
}

// FuzzParseChange: decoding any message ends.
func FuzzParseChange(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), request("eth0").Data)
	f.Add(uint16(unix.RTM_NEWADDR), append([]byte{2, 24, 0, 0, 1, 0, 0, 0}, 8, 0, 1, 0, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		c, ok := ParseChange(kind, data)
		if ok && c.Interface == nil && !c.Address.Prefix.IsValid() {
			t.Errorf("%+v", c)
		}
	})
}
