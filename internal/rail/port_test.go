package rail

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

func writeFile(t *testing.T, content string, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPortBytes: the byte counters of a rail, by driver.
func TestPortBytes(t *testing.T) {
	const counters, hw, net = "ports/1/counters/", "ports/1/hw_counters/", "class/net/eth0/statistics/"
	for name, tc := range map[string]struct {
		files    map[string]string
		software bool
		want     [Directions]uint64
		shared   bool
		err      error
	}{
		"mlx5, in words": {files: map[string]string{counters + "port_rcv_data": "10", counters + "port_xmit_data": "20",
			hw + "rx_bytes": "7", hw + "tx_bytes": "7"}, want: [Directions]uint64{40, 80}},
		"efa": {files: map[string]string{hw + "rx_bytes": "10", hw + "tx_bytes": "20"},
			want: [Directions]uint64{10, 20}},
		"irdma, the sum of two, and not its interface's": {files: map[string]string{hw + "ip4InOctets": "1",
			hw + "ip6InOctets": "2", hw + "ip4OutOctets": "3", hw + "ip6OutOctets": "4",
			net + "rx_bytes": "1000", net + "tx_bytes": "1000"}, want: [Directions]uint64{3, 7}},
		"ionic, the sum of two": {files: map[string]string{hw + "rx_rdma_ucast_bytes": "1", hw + "rx_rdma_mcast_bytes": "2",
			hw + "tx_rdma_ucast_bytes": "3", hw + "tx_rdma_mcast_bytes": "4"}, want: [Directions]uint64{3, 7}},
		"ionic without multicast": {files: map[string]string{hw + "rx_rdma_ucast_bytes": "10",
			hw + "tx_rdma_ucast_bytes": "20"}, want: [Directions]uint64{10, 20}},
		"erdma": {files: map[string]string{hw + "rx_bytes_cnt": "10", hw + "tx_bytes_cnt": "20"},
			want: [Directions]uint64{10, 20}},
		"erdma of its vendor": {files: map[string]string{hw + "hw_rx_bytes_cnt": "10", hw + "hw_tx_bytes_cnt": "20"},
			want: [Directions]uint64{10, 20}},
		"rxe": {files: map[string]string{net + "rx_bytes": "10", net + "tx_bytes": "20"}, software: true,
			want: [Directions]uint64{10, 20}, shared: true},
		"hardware bypasses its interface": {files: map[string]string{net + "rx_bytes": "10", net + "tx_bytes": "20"},
			err: ErrUncounted},
		"half of them": {files: map[string]string{counters + "port_rcv_data": "10"},
			err: ErrUncounted},
		"no PMA, as old kernels have it": {files: map[string]string{counters + "port_rcv_data": "N/A (no PMA)",
			counters + "port_xmit_data": "N/A (no PMA)"}, err: ErrUncounted},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, content := range tc.files {
				writeFile(t, content+"\n", dir, path)
			}
			r := Rail{Name: "0", Device: "x", Dir: dir, Port: 1, Netdev: "eth0", Software: tc.software}
			p := NewPort(dir, r, nil)
			defer p.Close()
			for d, want := range tc.want {
				if got, _, err := p.Bytes(d); got != want || !errors.Is(err, tc.err) {
					t.Errorf("direction %d: %d, %v; want %d, %v", d, got, err, want, tc.err)
				}
			}
			// The same port as the probe reads it.
			got, err := NewPort(dir, r, nil).Traffic()
			if got.Receive != tc.want[Receive] || got.Transmit != tc.want[Transmit] ||
				(got.Period >= sharedPeriod) != tc.shared || !errors.Is(err, tc.err) {
				t.Errorf("traffic: %+v, %v", got, err)
			}
		})
	}
}

// TestPortPackets: the packets whose bytes are counted, if the driver counts them.
func TestPortPackets(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  uint64
		err   error
	}{
		"mlx5": {files: map[string]string{"counters/port_rcv_data": "10", "counters/port_xmit_data": "20",
			"counters/port_xmit_packets": "3"}, want: 3},
		"irdma": {files: map[string]string{"hw_counters/ip4InOctets": "1", "hw_counters/ip6InOctets": "2",
			"hw_counters/ip4OutOctets": "3", "hw_counters/ip6OutOctets": "4"}, err: ErrUncounted},
		"no bytes": {files: map[string]string{"counters/port_xmit_packets": "3"}, err: ErrUncounted},
	} {
		dir := t.TempDir()
		for path, content := range tc.files {
			writeFile(t, content+"\n", dir, "ports/1", path)
		}
		p := NewPort(dir, Rail{Device: "x", Dir: dir, Port: 1}, nil)
		if got, err := p.Packets(Transmit); got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, err, tc.want, tc.err)
		}
		p.Close()
	}
}

// refusing is a file whose reads a driver refuses for some time.
type refusing struct {
	*sysfs.File
	refuses func() bool
	reads   *int
}

func (f refusing) Read(buf []byte) ([]byte, error) {
	*f.reads++
	if f.refuses() {
		return nil, sysfs.Fail(f.Path, unix.EINVAL)
	}
	return f.File.Read(buf)
}

// TestPortRefused: a counter that the firmware refuses is not read for a minute, for any number of callers, and the
// error stays the same meanwhile.
func TestPortRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"port_rcv_data", "port_xmit_data"} {
			writeFile(t, "1\n", dir, "ports/1/counters", name)
		}
		writeFile(t, "1\n", dir, "ports/1/hw_counters/out_of_sequence")
		begin, reads := time.Now(), 0
		open := func(path string) File {
			return refusing{&sysfs.File{Path: path}, func() bool {
				since := time.Since(begin)
				return !strings.HasSuffix(path, "port_rcv_data") && since > 5*time.Second && since < 10*time.Second
			}, &reads}
		}
		p := NewPort(dir, Rail{Device: "mlx5_0", Port: 1, Dir: dir}, open)
		defer p.Close()
		ask := func(most int, refused bool) {
			t.Helper()
			before := reads
			_, err := p.Traffic()
			_, _, errReceive := p.Bytes(Receive)
			p.ForgetBytes()
			if (err != nil) != refused || refused && (!errors.Is(err,
				unix.EINVAL) || errReceive == nil || errReceive.Error() != err.Error()) {
				t.Errorf("after %v: %v, %v", time.Since(begin), err, errReceive)
			}
			if reads-before > most {
				t.Errorf("after %v: %d reads, want at most %d", time.Since(begin), reads-before, most)
			}
		}
		ask(100, false)
		time.Sleep(6 * time.Second)
		ask(100, true)
		for time.Since(begin) < 65*time.Second {
			time.Sleep(time.Second)
			ask(0, true)
		}
		time.Sleep(2 * time.Second)
		ask(100, false)
	})
}

// TestPortReads: the values of a port, and the errors of missing ones.
func TestPortReads(t *testing.T) {
	dir := t.TempDir()
	r := Rail{Device: "mlx5_0", Port: 1, Dir: dir, PCIAddress: "0000:01:00.0", Netdev: "eth0", LinkLayer: "Ethernet"}
	p := NewPort(dir, r, nil)
	defer p.Close()
	number := func(v int, err error) (float64, error) { return float64(v), err }
	reads := map[string]func() (float64, error){
		"state":      func() (float64, error) { return number(p.State()) },
		"phys_state": func() (float64, error) { return number(p.PhysState()) },
		"rate":       p.Rate,
		"link": func() (float64, error) {
			l, err := p.Link()
			return l.GigaTransfers * float64(l.Width), err
		},
		"mtu": func() (float64, error) {
			netdev, active, err := p.MTU()
			return float64(netdev) + float64(active)/1e6, err
		},
	}
	const speed, width = "device/current_link_speed", "device/current_link_width"
	for _, tc := range []struct {
		read, path, content string
		want                float64
		reason              string // reason of the error
	}{
		{"state", "ports/1/state", "4: ACTIVE\n", 4, ""},
		{"state", "ports/1/state", "4\n", 0, sysfs.ReasonInvalid},
		{"state", "ports/1/state", "", 0, sysfs.ReasonEmpty},
		{"phys_state", "ports/1/phys_state", "5: LinkUp\n", 5, ""},
		{"phys_state", "ports/1/phys_state", "300: what\n", 0, sysfs.ReasonInvalid},
		{"rate", "ports/1/rate", "400 Gb/sec (4X NDR)\n", 50e9, ""},
		{"rate", "ports/1/rate", "fast\n", 0, sysfs.ReasonInvalid},
		{"rate", "ports/1/rate", "\n", 0, sysfs.ReasonEmpty},
		{"link", speed, "32.0 GT/s PCIe\n", 0, sysfs.ReasonVanished}, // error of the width
		{"link", width, "16\n", 512, ""},
		{"link", width, "64\n", 0, sysfs.ReasonRange},
		{"link", speed, "fast\n", 0, sysfs.ReasonInvalid},
		{"mtu", "class/net/eth0/mtu", "9000\n", 9000.004096, ""},
		{"mtu", "class/net/eth0/mtu", "5000000000\n", 0, sysfs.ReasonRange},
	} {
		writeFile(t, tc.content, dir, tc.path)
		got, err := reads[tc.read]()
		if got != tc.want || (err == nil) != (tc.reason == "") || err != nil && sysfs.Reason(err) != tc.reason {
			t.Errorf("%s of %q: %v, %v; want %v, %s", tc.read, tc.content, got, err, tc.want, tc.reason)
		}
		if err != nil && !strings.Contains(err.Error(), dir) {
			t.Errorf("%q does not name the file", err)
		}
	}
	for path, content := range map[string]string{speed: "Unknown\n", width: "0\n"} {
		writeFile(t, "32.0 GT/s PCIe\n", dir, speed)
		writeFile(t, content, dir, path)
		if _, err := p.Link(); !errors.Is(err, ErrNoLink) {
			t.Errorf("%s of %q: %v", path, content, err)
		}
	}
}
