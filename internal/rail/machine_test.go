package rail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// machine is a small tree that changes: devices with one port, each on a network interface.
type machine struct {
	t      *testing.T
	dir    string
	graves int
}

func newMachine(t *testing.T, devices ...string) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	m.must(os.MkdirAll(m.path("class/infiniband"), 0o755))
	for i, d := range devices {
		m.add(d, fmt.Sprintf("eth%d", i))
	}
	return m
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}

func (m *machine) write(content string, elem ...string) {
	m.t.Helper()
	path := m.path(elem...)
	m.must(os.MkdirAll(filepath.Dir(path), 0o755))
	m.must(os.WriteFile(path, []byte(content), 0o644))
}

func (m *machine) add(device, netdev string) {
	m.t.Helper()
	m.write("Ethernet\n", "class/infiniband", device, "ports/1/link_layer")
	m.write("1\n", "class/infiniband", device, "fw_ver")
	m.write("0\n", "class/infiniband", device, "device/net", netdev, "dev_port")
	m.write("1500\n", "class/net", netdev, "mtu")
}

// remove removes a device. Its files are kept elsewhere, so that no inode is reused.
func (m *machine) remove(device string) {
	m.t.Helper()
	m.graves++
	m.must(os.MkdirAll(m.path("graves"), 0o755))
	m.must(os.Rename(m.path("class/infiniband", device), m.path("graves", fmt.Sprint(m.graves))))
}

func brief(r Rail) string { return fmt.Sprintf("%s %s %s %s", r.Name, r.Device, r.Netdev, r.Firmware) }
