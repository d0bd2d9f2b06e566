package ethtool

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/nlattr"
)

// pages is the memory of a module: pages of 128 bytes by I2C address, page and offset.
type pages map[string][]byte

func (p pages) read(i2c, page byte, offset, length uint32) ([]byte, error) {
	if memory, ok := p[fmt.Sprintf("%#x %d %d", i2c, page, offset)]; ok {
		return memory[:length], nil
	}
	return nil, unix.EINVAL
}

// with returns a page with these bytes from their places on; a place counts from the begin of the whole memory.
func with(bytes map[int]string) []byte {
	memory := make([]byte, 2*pageSize)
	for at, text := range bytes {
		b, err := hex.DecodeString(text)
		if err != nil {
			panic(err)
		}
		copy(memory[at:], b)
	}
	for at := range bytes {
		if at >= pageSize {
			return memory[pageSize:]
		}
	}
	return memory[:pageSize]
}

// TestDecodeModule: each kind of module after its specification. A module is "temperature receive transmit", in
// microwatts. The first is the memory of a 100G QSFP28 that a user of SONiC printed (sonic-net/sonic-utilities#2379).
func TestDecodeModule(t *testing.T) {
	lower, upper, diagnostics := "0x50 0 0", "0x50 0 128", "0x51 0 0"
	optics := map[int]string{0: "11", 22: "1385", 34: "32c934d92bb92f43", 42: "00000f9f0f800f80", 50: "0001361734d23043"}
	cmis := map[int]string{0: "18", 14: "2e80", 85: "02", 86: "1d1c4401"}
	lanes := with(map[int]string{154: "2710271127122713ffffffffffffffff", 186: "00010002000300040005000600070008"})
	for _, tc := range []struct {
		why    string
		memory pages
		want   string
	}{
		{"QSFP28, with one laser off", pages{lower: with(optics), upper: with(map[int]string{147: "00", 220: "0c"})},
			"19.52 [1300.1 1352.9 1119.3 1209.9] [0.1 1384.7 1352.2 1235.5]"},
		{"QSFP28 that does not measure its lasers", pages{lower: with(optics),
			upper: with(map[int]string{147: "40", 220: "08"})}, "19.52 [1300.1 1352.9 1119.3 1209.9] []"},
		{"QSFP28 of copper", pages{lower: with(optics), upper: with(map[int]string{147: "a0", 220: "0c"})}, "? [] []"},
		{"QSFP+, frosty", pages{lower: with(map[int]string{0: "0d", 22: "ff80"}), upper: with(map[int]string{147: "10"})},
			"-0.50 [0 0 0 0] []"},
		{"QSFP-DD, 400G with 4 lanes of the medium", pages{lower: with(cmis),
			"0x50 1 128": with(map[int]string{159: "0306"}), "0x50 17 128": lanes},
			"46.50 [0.1 0.2 0.3 0.4] [1000 1000.1 1000.2 1000.3]"},
		{"OSFP of two ports with 4 lanes", pages{lower: with(map[int]string{0: "19", 14: "2e80", 85: "02", 86: "501c4411"}),
			"0x50 1 128": with(map[int]string{159: "0004"}), "0x50 17 128": lanes},
			"? [0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8] []"},
		{"CMIS without lanes", pages{lower: with(map[int]string{0: "1e", 85: "02"}),
			"0x50 1 128": with(map[int]string{159: "0104"}), "0x50 17 128": lanes},
			"0.00 [0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8] []"},
		{"CMIS that measures no light", pages{lower: with(cmis), "0x50 1 128": with(map[int]string{159: "0101"})},
			"46.50 [] []"},
		{"CMIS of passive copper", pages{lower: with(map[int]string{0: "18", 85: "03"})}, "? [] []"},
		{"CMIS with one page", pages{lower: with(map[int]string{0: "19", 2: "80", 85: "02"})}, "? [] []"},
		{"SFP", pages{lower: with(map[int]string{0: "03", 92: "68"}),
			diagnostics: with(map[int]string{96: "1900", 102: "15b31000"})}, "25.00 [409.6] [555.5]"},
		{"SFP that the host would calibrate", pages{lower: with(map[int]string{0: "03", 92: "58"})}, "? [] []"},
		{"SFP without diagnostics", pages{lower: with(map[int]string{0: "03", 92: "20"})}, "? [] []"},
		{"SFP of copper", pages{lower: with(map[int]string{0: "03", 8: "04", 92: "68"})}, "? [] []"},
		{"an unknown kind", pages{lower: with(map[int]string{0: "7f"})}, "? [] []"},
		{"no module", pages{}, "invalid argument"},
		{"no upper page", pages{lower: with(optics)}, "invalid argument"},
		{"no page 1", pages{lower: with(cmis)}, "invalid argument"},
		{"no monitors", pages{lower: with(cmis), "0x50 1 128": with(map[int]string{159: "0306"})}, "invalid argument"},
		{"no diagnostics of SFP", pages{lower: with(map[int]string{0: "03", 92: "60"})}, "invalid argument"},
	} {
		m, err := decodeModule(tc.memory.read)
		got := "?"
		if m.Temperature != nil {
			got = fmt.Sprintf("%.2f", *m.Temperature)
		}
		for _, lanes := range [][]float64{m.Receive, m.Transmit} {
			var list []string
			for _, watts := range lanes {
				list = append(list, fmt.Sprintf("%.5g", watts*1e6))
			}
			got += fmt.Sprint(" [", strings.Join(list, " "), "]")
		}
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, got, tc.want)
		}
	}
}

// TestReadModulePage compares the request with what net/ethtool/eeprom.c of Linux 6.12 expects.
func TestReadModulePage(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	const ask = "\x1f\x01\x00\x00" + "\x10\x00\x01\x80" + "\x09\x00\x02\x00eth0\x00\x00\x00\x00" +
		"\x08\x00\x02\x00\x80\x00\x00\x00" + "\x08\x00\x03\x00\x02\x00\x00\x00" +
		"\x05\x00\x04\x00\x11\x00\x00\x00" + "\x05\x00\x06\x00\x50\x00\x00\x00"
	for name, tt := range map[string]struct {
		answer string
		errno  int
		want   []byte
		fails  error
	}{
		"data":      {"\x20\x01\x00\x00" + "\x06\x00\x07\x00\x12\x34\x00\x00", 0, []byte{0x12, 0x34}, nil},
		"short":     {"\x20\x01\x00\x00" + "\x05\x00\x07\x00\x12\x00\x00\x00", 0, nil, nlattr.ErrSize},
		"no data":   {"\x20\x01\x00\x00", 0, nil, nlattr.ErrSize},
		"forbidden": {"", int(unix.EPERM), nil, unix.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []string{family, tt.answer}
			conn := nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
				if len(reqs) == 0 { // the connection is closed
					return nil, nil
				}
				if diff := cmp.Diff(ask, string(reqs[0].Data)); len(answers) == 1 && diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
				answer := answers[0]
				answers = answers[1:]
				if answer == "" {
					return nltest.Error(tt.errno, reqs)
				}
				return []netlink.Message{{Header: reqs[0].Header, Data: []byte(answer)}}, nil
			})
			got, err := readModulePage(conn, "eth0", addressMemory, 0x11, 128, 2)
			if !errors.Is(err, tt.fails) || (err == nil) != (tt.fails == nil) || !cmp.Equal(got, tt.want) {
				t.Errorf("%x, %v; want %x, %v", got, err, tt.want, tt.fails)
			}
		})
	}
}
