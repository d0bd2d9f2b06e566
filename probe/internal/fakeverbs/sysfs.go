package fakeverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Sysfs returns the root of a node's sysfs. Its port counters count the writes.
func (f *Fabric) Sysfs(node string) string {
	f.tb.Helper()
	dir := f.sysfs(node)
	f.must(os.MkdirAll(filepath.Join(dir, "class/infiniband"), 0o755))
	f.must(os.MkdirAll(filepath.Join(dir, "class/net"), 0o755))
	return dir
}

func (f *Fabric) sysfs(node string) string { return filepath.Join(f.dir, "node-"+node, "sys") }

func (d *Device) pciDir(sys string) string {
	return filepath.Join(sys, "devices/pci0000:00", d.PCIAddress)
}

func (d *Device) portDir(sys string) string {
	return filepath.Join(d.pciDir(sys), "infiniband", d.Name, "ports", strconv.Itoa(d.Port))
}

// guid returns the node GUID.
func (d *Device) guid(n int) uint64 { return 0xe8ebd30300a00000 + uint64(n) + 1 }

func colons(v uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// write writes the device's part of the tree: PCI function, interface, and links of the classes.
func (d *Device) write(sys string, n int) error {
	pci := d.pciDir(sys)
	ib, net, port := filepath.Join(pci, "infiniband", d.Name), filepath.Join(pci, "net", d.Netdev), d.portDir(sys)
	linkLayer, nodeType := "Ethernet", "1: CA"
	if d.InfiniBand {
		linkLayer = "InfiniBand"
	}
	if d.IWARP {
		nodeType = "4: RNIC"
	}
	files := map[string]string{
		filepath.Join(pci, "numa_node"):          "0",
		filepath.Join(pci, "current_link_speed"): "32.0 GT/s PCIe",
		filepath.Join(pci, "current_link_width"): "16",
		filepath.Join(pci, "max_link_speed"):     "32.0 GT/s PCIe",
		filepath.Join(pci, "max_link_width"):     "16",
		filepath.Join(ib, "node_type"):           nodeType,
		filepath.Join(ib, "fw_ver"):              d.Firmware,
		filepath.Join(ib, "hca_type"):            "MT4129",
		filepath.Join(ib, "board_id"):            "MT_0000000838",
		filepath.Join(ib, "node_guid"):           colons(d.guid(n)),
		filepath.Join(ib, "sys_image_guid"):      colons(d.guid(n)),
		filepath.Join(port, "link_layer"):        linkLayer,
		filepath.Join(port, "rate"):              d.PortRate,
		filepath.Join(net, "mtu"):                strconv.Itoa(d.NetdevMTU),
		filepath.Join(net, "dev_port"):           strconv.Itoa(d.Port - 1),
		filepath.Join(net, "address"):            fmt.Sprintf("e8:eb:d3:a0:00:%02x", n+1),
		filepath.Join(net, "ifindex"):            strconv.Itoa(n + 2),
	}
	for _, counter := range []string{"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets",
		"port_xmit_discards",
		"port_rcv_errors", "port_xmit_wait", "link_downed", "symbol_error"} {
		files[filepath.Join(port, "counters", counter)] = "0"
	}
	var errs []error
	for path, content := range files {
		errs = append(errs, writeFile(path, content))
	}
	errs = append(errs, d.writeState(sys), d.writeGIDs(sys),
		link(pci, filepath.Join(ib, "device")), link(pci, filepath.Join(net, "device")),
		link(ib, filepath.Join(sys, "class/infiniband", d.Name)), link(net, filepath.Join(sys, "class/net", d.Netdev)))
	return errors.Join(errs...)
}

// writeState writes the port state.
func (d *Device) writeState(sys string) error {
	state, phys, carrier, oper := "4: ACTIVE", "5: LinkUp", "1", "up"
	if d.Down {
		state, phys, carrier, oper = "1: DOWN", "3: Disabled", "0", "down"
	}
	port, net := d.portDir(sys), filepath.Join(d.pciDir(sys), "net", d.Netdev)
	return errors.Join(writeFile(filepath.Join(port, "state"), state),
		writeFile(filepath.Join(port, "phys_state"), phys),
		writeFile(filepath.Join(net, "carrier"), carrier), writeFile(filepath.Join(net, "operstate"), oper))
}

// writeGIDs writes the GID table. Type and netdev of an empty entry are empty files here; the kernel returns an error.
func (d *Device) writeGIDs(sys string) error {
	port := d.portDir(sys)
	var errs []error
	for i := range maxGIDs {
		name := strconv.Itoa(i)
		gid, typ, ndev := filepath.Join(port, "gids", name), filepath.Join(port, "gid_attrs/types", name),
			filepath.Join(port, "gid_attrs/ndevs", name)
		if i < len(d.GIDs) && d.GIDs[i].Addr.IsValid() {
			errs = append(errs, writeFile(gid, d.GIDs[i].text()), writeFile(typ, d.GIDs[i].Type),
				writeFile(ndev, d.GIDs[i].Netdev))
			continue
		}
		errs = append(errs, writeFile(gid, GID{}.text()), writeFile(typ, ""), writeFile(ndev, ""))
	}
	return errors.Join(errs...)
}

// text returns the GID in the format of sysfs.
func (g GID) text() string {
	var b [16]byte
	if g.Addr.IsValid() {
		b = g.Addr.As16()
	}
	return colons(binary.BigEndian.Uint64(b[:8])) + ":" + colons(binary.BigEndian.Uint64(b[8:]))
}

// writeFile overwrites a file in place, because readers keep it open and must not find it empty.
func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(content+"\n"), 0); err != nil {
		return err
	}
	return file.Truncate(int64(len(content) + 1))
}

func link(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	rel, err := filepath.Rel(filepath.Dir(path), target)
	if err != nil {
		return err
	}
	if err := os.Symlink(rel, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
