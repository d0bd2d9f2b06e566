package machines

import (
	"fmt"
	"path"
	"strings"
)

// Model is a kind of adapter.
type Model struct {
	Function
	RDMA
	Counters Counters
	Rate     string // rate of its port
	Speed    int    // speed of its interface, Mb/s
	Layer    string // link layer of the port if it is neither Ethernet nor InfiniBand
}

func mlx(device, hca, gt string, width int, rate string, speed int) Model {
	return Model{Function: Function{Device: device, Driver: "mlx5_core", GT: gt, Width: width},
		RDMA: RDMA{HCA: hca, Board: "MT_0000000838", Firmware: "28.45.4028"}, Rate: rate, Speed: speed}
}

// Rates as the kernel prints them.
const (
	Rate10  = "10 Gb/sec (1X QDR)"
	Rate25  = "25 Gb/sec (1X EDR)"
	Rate40  = "40 Gb/sec (4X QDR)"
	Rate50  = "50 Gb/sec (1X HDR)"
	Rate56  = "56 Gb/sec (4X FDR)"
	Rate100 = "100 Gb/sec (4X EDR)"
	Rate200 = "200 Gb/sec (4X HDR)"
	Rate400 = "400 Gb/sec (4X NDR)"
	Rate800 = "800 Gb/sec (4X XDR)"
)

// Models of Mellanox and NVIDIA. A function that a virtual machine or a bond changes is a copy with other fields.
func cx3() Model {
	return Model{Function: Function{Device: "0x1003", Driver: "mlx4_core", GT: "8.0", Width: 8}, Rate: Rate40,
		Speed: 40000,
		RDMA:  RDMA{HCA: "MT4099", Board: "MT_1090120019", Firmware: "2.42.5000"}, Counters: PMACounters}
}
func cx4() Model   { return mlx("0x1013", "MT4115", "8.0", 16, Rate100, 100000) }
func cx4lx() Model { return mlx("0x1015", "MT4117", "8.0", 8, Rate25, 25000) }
func cx5() Model   { return mlx("0x1017", "MT4119", "8.0", 16, Rate100, 100000) }
func cx6() Model   { return mlx("0x101b", "MT4123", "16.0", 16, Rate200, 200000) }
func cx6dx() Model { return mlx("0x101d", "MT4125", "16.0", 16, Rate100, 100000) }
func cx7() Model   { return mlx("0x1021", "MT4129", "32.0", 16, Rate400, 400000) }
func cx8() Model   { return mlx("0x1023", "MT4131", "64.0", 16, Rate800, 800000) }
func bf2() Model   { return mlx("0xa2d6", "MT41686", "16.0", 16, Rate100, 100000) }
func bf3() Model   { return mlx("0xa2dc", "MT41692", "32.0", 16, Rate400, 400000) }

// cxVF returns a virtual function of mlx5.
func cxVF(rate string, speed int) Model { return mlx("0x101e", "MT4126", "Unknown", 16, rate, speed) }

// Models of other vendors.
func thor2() Model {
	return Model{Function: Function{Vendor: "0x14e4", Device: "0x1760", Driver: "bnxt_en"}, Counters: BnxtCounters,
		RDMA: RDMA{HCA: "Broadcom NetXtreme-C/E RoCE Driver HCA", Firmware: "231.0.153.0"}, Rate: Rate400,
		Speed: 400000}
}
func thor() Model {
	m := thor2()
	m.Device, m.GT, m.Rate, m.Speed = "0x1750", "16.0", Rate100, 100000
	return m
}
func e810() Model {
	return Model{Function: Function{Vendor: "0x8086", Device: "0x1592", Driver: "ice", GT: "16.0"},
		Counters: IrdmaCounters,
		RDMA:     RDMA{Firmware: "1.73"}, Rate: Rate100, Speed: 100000}
}
func pollara() Model {
	return Model{Function: Function{Vendor: "0x1dd8", Device: "0x1002", Driver: "ionic"}, Counters: IonicCounters,
		RDMA: RDMA{HCA: "AMD Pensando RoCE HCA", Firmware: "1.117.5-a-45"}, Rate: Rate400, Speed: 400000}
}
func efa() Model {
	return Model{Function: Function{Vendor: "0x1d0f", Device: "0xefa1", Driver: "efa", GT: "Unknown"},
		Counters: EFACounters,
		RDMA:     RDMA{Firmware: "0.0.0.0", NodeType: "7: unspecified"}, Rate: Rate100, Layer: "Unknown"}
}
func erdma() Model {
	return Model{Function: Function{Vendor: "0x1ded", Device: "0x107f", Driver: "erdma", GT: "Unknown"},
		Counters: ErdmaCounters, RDMA: RDMA{Firmware: "2.0", NodeType: "4: RNIC"}, Rate: Rate100}
}
func mana() Model {
	return Model{Function: Function{Vendor: "0x1414", Device: "0x00ba", Driver: "mana", GT: "Unknown"},
		Counters: ManaCounters, RDMA: RDMA{Firmware: "0.0.0"}, Rate: Rate200, Speed: 200000}
}
func hns() Model {
	return Model{Function: Function{Vendor: "0x19e5", Device: "0xa222", Driver: "hns3", GT: "Unknown"},
		Counters: HnsCounters, RDMA: RDMA{Firmware: "1.20.0"}, Rate: Rate100, Speed: 100000}
}
func hfi() Model {
	return Model{Function: Function{Vendor: "0x8086", Device: "0x24f0", Driver: "hfi1", GT: "8.0", Class: "0x020800"},
		Counters: PMACounters, RDMA: RDMA{Firmware: "1.27.0",
			Board: "Intel Omni-Path Host Fabric Interface Adapter 100 Series"}, Rate: Rate100, Speed: 100000}
}
func qedr() Model {
	return Model{Function: Function{Vendor: "0x1077", Device: "0x8070", Driver: "qede", GT: "8.0", Width: 8},
		Counters: RefusedPMA, RDMA: RDMA{HCA: "FastLinQ QL8070 RoCE", Firmware: "8.42.2.0"}, Rate: Rate25, Speed: 25000}
}
func t6() Model {
	return Model{Function: Function{Vendor: "0x1425", Device: "0x6408", Driver: "cxgb4", GT: "8.0"},
		Counters: NoCounters,
		RDMA:     RDMA{HCA: "cxgb4", Board: "1425.6408", Firmware: "1.27.1.0", NodeType: "4: RNIC"}, Rate: Rate100,
		Speed: 100000}
}

// Adapter is one function with its interface and its RDMA device.
type Adapter struct {
	Model
	At             string // path below sys/devices; a PCI address stands for a function below its own root port
	Device, Netdev string // empty Netdev: no interface is visible
	IB             bool
	MTU            int
	NeverUp        bool   // no cable
	Down           bool   // it lost its link
	GPU            string // address of a GPU behind the same switch, which is created with it
	AMD            string // PCI device ID if the GPU is from AMD
	Edit           func(*Port)
}

// Add creates an adapter, and returns the directory of its function.
func (t *Tree) Add(a Adapter) string {
	at := a.At
	if !strings.Contains(at, "/") {
		domain, bus := at[:strings.LastIndex(at, ":")], at[strings.LastIndex(at, ":")-2:strings.LastIndex(at, ":")]
		domain = domain[:len(domain)-len(bus)-1]
		root := fmt.Sprintf("pci%s:%s/%[1]s:%[2]s:1f.0", domain, "f"+bus[1:])
		if bus[0] == 'f' {
			root = fmt.Sprintf("pci%s:%s/%[1]s:%[2]s:1f.0", domain, "e"+bus[1:])
		}
		root = strings.Replace(root, "1f.0", "1"+fmt.Sprint(int(bus[0])%8)+".0", 1)
		at = path.Join(root, a.At)
		if a.GPU != "" {
			up := path.Join(root, fmt.Sprintf("%s:%s:1e.0", domain, bus))
			at = path.Join(up, fmt.Sprintf("%s:%s:1d.0", domain, bus), a.At)
			gpu := Function{}
			if a.AMD != "" {
				gpu = instinct(a.AMD)
			}
			t.GPU(path.Join(up, fmt.Sprintf("%s:%s:1d.1", domain, bus), a.GPU), gpu)
		}
	}
	if a.IB {
		a.Class = "0x020700"
	}
	dir := t.Function(at, a.Function)
	if a.Netdev != "" {
		mtu := a.MTU
		if mtu == 0 && a.IB {
			mtu = 4092
		}
		t.Netdev(dir, a.Netdev, Netdev{Speed: a.Speed, MTU: mtu, NeverUp: a.NeverUp, NoCarrier: a.Down,
			InfiniBand: a.IB})
	}
	p := Port{Netdev: a.Netdev, Rate: a.Rate, InfiniBand: a.IB, Layer: a.Layer, Counters: a.Counters,
		Down: a.Down, Disabled: a.NeverUp}
	if a.Edit != nil {
		a.Edit(&p)
	}
	device := a.RDMA
	device.Ports = []Port{p}
	t.RDMA(dir, a.Device, device)
	return dir
}

// Plugged returns an adapter that no machine of the zoo has, to be added to one.
func Plugged() Model { return mlx("0x1021", "MT4129", "32.0", 16, Rate100, 100000) }
