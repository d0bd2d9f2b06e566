package facts

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/nlattr"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// CongestionParameters returns the files of mlx5's cc_params that are read (drivers/infiniband/hw/mlx5/cong.c).
func CongestionParameters() []string {
	return []string{"np_cnp_dscp", "np_cnp_prio", "np_cnp_prio_mode", "np_min_time_between_cnps",
		"rp_ai_rate", "rp_hai_rate", "rp_min_rate", "rp_clamp_tgt_rate"}
}

func qosLane(v rail.Rail) string { return ReaderQoS + " of " + rail.Key(v.Device, v.Port) }

// readQoS reads the settings of a rail that is Ethernet hardware. Some reads are firmware commands.
func (g *Gatherer) readQoS(r *reader, v rail.Rail) func(*Facts) {
	q := QoS{Device: v.Device, Port: v.Port}
	if v.Netdev != "" {
		g.readFlowControl(r, v, &q)
		g.readNetdevSettings(v.Netdev, &q)
	}
	port := strconv.Itoa(v.Port)
	q.addFile(g.o.Sysfs, "traffic_class", "Global tclass=", "class/infiniband", v.Device, "tc", port, "traffic_class")
	q.addFile(g.o.Sysfs, "roce_tos", "", "kernel/config/rdma_cm", v.Device, "ports", port, "default_roce_tos")
	if v.PCIAddress != "" && v.Driver == "mlx5_core" {
		dir := filepath.Join("kernel/debug/mlx5", v.PCIAddress, "cc_params")
		if _, err := os.Stat(filepath.Join(g.o.Sysfs, dir)); errors.Is(err, os.ErrPermission) {
			r.say("DCQCN parameters below /sys/kernel/debug/mlx5: permission denied; run doctor as root")
		}
		for _, name := range CongestionParameters() {
			q.addFile(g.o.Sysfs, name, "", dir, name)
		}
	}
	return func(f *Facts) { f.QoS = append(f.QoS, q) }
}

func (q *QoS) add(name, value, where string) {
	q.Settings = append(q.Settings, Setting{name, clean(value), where})
}

// addFile adds a setting from one file, without the prefix of its content.
func (q *QoS) addFile(sysfsRoot, name, prefix string, elem ...string) {
	path := filepath.Join(elem...)
	text, err := sysfs.ReadString(sysfsRoot, path)
	if err != nil {
		return
	}
	value, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(text, prefix)), "\n")
	q.add(name, cmp.Or(value, "unset"), "/sys/"+path)
}

func (g *Gatherer) readFlowControl(r *reader, v rail.Rail, q *QoS) {
	add := func(name, value, command string, err error) {
		switch {
		case err == nil:
			q.add(name, value, command+" "+v.Netdev)
		case !unsupported(err):
			r.say("%s: %v; compare with: dcb pfc show dev %s", qosLane(v), firstLine(err), v.Netdev)
		}
	}
	if g.kernel.DCB != nil {
		dcb, err := g.kernel.DCB(v.Netdev)
		add("pfc", priorities(func(p int) bool { return dcb.PFC>>p&1 == 1 }), "dcb pfc show dev", err)
		if err == nil {
			add("dscp", dcb.classes(), "dcb app show dev", nil)
		}
	}
	if g.kernel.Pause != nil {
		rx, tx, err := g.kernel.Pause(v.Netdev)
		word := map[bool]string{true: "on", false: "off"}
		add("pause", "rx "+word[rx]+" tx "+word[tx], "ethtool -a", err)
	}
}

// readNetdevSettings reads the settings that MLNX_OFED and DOCA add to a netdev.
func (g *Gatherer) readNetdevSettings(netdev string, q *QoS) {
	dir := filepath.Join("class/net", netdev)
	q.addFile(g.o.Sysfs, "trust", "", dir, "qos/trust")
	for _, side := range []string{"roce_np", "roce_rp"} {
		enable := filepath.Join(dir, "ecn", side, "enable")
		known := true
		on := priorities(func(p int) bool {
			text, err := sysfs.ReadString(g.o.Sysfs, enable, strconv.Itoa(p))
			known = known && err == nil
			return text == "1"
		})
		if known {
			q.add(side, on, "/sys/"+enable)
		}
	}
}

func unsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

func priorities(on func(int) bool) string {
	var list []string
	for p := range 8 {
		if on(p) {
			list = append(list, strconv.Itoa(p))
		}
	}
	return cmp.Or(strings.Join(list, ","), "none")
}

// Constants of include/uapi/linux/dcbnl.h; golang.org/x/sys/unix has only RTM_GETDCB.
const (
	dcbCmdIEEEGet  = 21
	dcbAttrIfname  = 1
	dcbAttrIEEE    = 13
	dcbAttrIEEEPFC = 2
	dcbAttrIEEEApp = 3             // table of entries
	dcbAttrApp     = 1             // entry: struct dcb_app
	dcbSelectDSCP  = 5             // IEEE_8021QAZ_APP_SEL_DSCP
	dcbHead        = 4             // struct dcbmsg: family, command, padding
	dcbPFCSize     = 8 + 8*8 + 8*8 // struct ieee_pfc: pfc_cap, pfc_en, mbc, delay, then 2 × 8 u64
	dcbWait        = time.Second   // timeout for the kernel's reply, which arrives at once or never
	pauseSize      = 4 * 4         // struct ethtool_pauseparam: cmd, autoneg, rx_pause, tx_pause
)

// DCB is what sorts an interface's packets into priorities, and which of these are lossless.
type DCB struct {
	PFC  uint8           // priorities with PFC, one bit each
	DSCP map[uint8]uint8 // priority by DSCP; without an entry the driver decides
}

// classes returns the priority of each DSCP as text, such as "0=0-7 3=24,26"; none without entries.
func (d DCB) classes() string {
	var list []string
	for priority := range uint8(8) {
		var of []string
		for dscp := 0; dscp < 64; {
			end := dscp
			for end < 64 && d.leads(end, priority) {
				end++
			}
			if end == dscp {
				dscp++
				continue
			}
			text := strconv.Itoa(dscp)
			if end > dscp+1 {
				text += "-" + strconv.Itoa(end-1)
			}
			of, dscp = append(of, text), end
		}
		if len(of) > 0 {
			list = append(list, fmt.Sprintf("%d=%s", priority, strings.Join(of, ",")))
		}
	}
	return cmp.Or(strings.Join(list, " "), "none")
}

func (d DCB) leads(dscp int, priority uint8) bool {
	p, ok := d.DSCP[uint8(dscp)]
	return ok && p == priority
}

// kernelDCB queries an interface's priorities, as `dcb pfc show` and `dcb app show` do. It fails with EOPNOTSUPP if the
// driver has no DCB. The netlink library of the routes does not support DCB.
func kernelDCB(netdev string) (d DCB, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err == nil {
		defer conn.Close()
		err = conn.SetDeadline(time.Now().Add(dcbWait))
	}
	if err == nil {
		d, err = queryDCB(conn, netdev)
	}
	if err != nil {
		err = fmt.Errorf("query PFC of %s: %w", netdev, err)
	}
	return d, err
}

// queryDCB sends one DCB_CMD_IEEE_GET (dcbnl_ieee_get in net/dcb/dcbnl.c), which needs no privilege.
func queryDCB(conn *netlink.Conn, netdev string) (DCB, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(dcbAttrIfname, netdev)
	attrs, err := ae.Encode()
	if err != nil {
		return DCB{}, err
	}
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request},
		Data: append([]byte{unix.AF_UNSPEC, dcbCmdIEEEGet, 0, 0}, attrs...)})
	if err != nil {
		return DCB{}, err
	}
	for _, m := range replies {
		if d, err := decodeDCB(m.Data, netdev); err == nil {
			return d, nil
		}
	}
	return DCB{}, unix.EOPNOTSUPP // DCB without PFC
}

func decodeDCB(data []byte, netdev string) (d DCB, err error) {
	if len(data) < dcbHead || data[1] != dcbCmdIEEEGet {
		return DCB{}, fmt.Errorf("%d bytes are not a DCB reply", len(data))
	}
	attrs := data[dcbHead:]
	name := unix.ByteSliceToString(nlattr.Last(attrs, dcbAttrIfname, &err))
	ieee := nlattr.Last(attrs, dcbAttrIEEE, &err)
	pfc := nlattr.Last(ieee, dcbAttrIEEEPFC, &err)
	d.DSCP = map[uint8]uint8{}
	for typ, app := range nlattr.All(nlattr.Last(ieee, dcbAttrIEEEApp, &err), &err) {
		if typ != dcbAttrApp || len(app) < 4 || app[0] != dcbSelectDSCP {
			continue
		}
		dscp := binary.NativeEndian.Uint16(app[2:])
		if dscp < 64 && app[1] < 8 { // with several entries, the kernel uses the highest priority
			d.DSCP[uint8(dscp)] = max(d.DSCP[uint8(dscp)], app[1])
		}
	}
	switch {
	case err != nil:
		return DCB{}, err
	case name != netdev:
		return DCB{}, fmt.Errorf("the reply is about %q", clean(name))
	case len(pfc) < dcbPFCSize: // the kernel's struct may grow at its end
		return DCB{}, fmt.Errorf("%s has no PFC: %w", netdev, unix.EOPNOTSUPP)
	}
	d.PFC = pfc[1]
	return d, nil
}

func readPause(ioctl ethtool.Ioctl, netdev string) (rx, tx bool, err error) {
	request := make([]byte, pauseSize)
	binary.NativeEndian.PutUint32(request, unix.ETHTOOL_GPAUSEPARAM)
	if err := ioctl(netdev, request); err != nil {
		return false, false, fmt.Errorf("ethtool pause of %s: %w", netdev, err)
	}
	return binary.NativeEndian.Uint32(request[8:]) != 0, binary.NativeEndian.Uint32(request[12:]) != 0, nil
}

func kernelPause(netdev string) (rx, tx bool, err error) {
	socket, err := ethtool.Open()
	if err != nil {
		return false, false, err
	}
	defer socket.Close() //nolint:errcheck // nothing was written to it
	return readPause(socket.Ioctl, netdev)
}
