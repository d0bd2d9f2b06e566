package rail

import "testing"

// TestInGuest: each sign of a virtual machine is enough.
func TestInGuest(t *testing.T) {
	const bus, bridge, firmware = "devices/pci0000:00/", "0000:00:01.0/", "class/dmi/id/"
	const function = bus + bridge + "0000:01:00.0"
	virtual := map[string]string{function + "/vendor": "0x15b3", function + "/device": "0x101e"}
	of := func(vendor, product string) map[string]string {
		return map[string]string{firmware + "sys_vendor": vendor, firmware + "product_name": product}
	}
	for why, tc := range map[string]struct {
		files    map[string]string
		physical bool // the physical function is here
		want     bool
	}{
		"bare metal":                  {files: of("Dell Inc.", "PowerEdge XE9680")},
		"a virtual function alone":    {files: virtual, want: true},
		"beside its physical one":     {files: virtual, physical: true},
		"a physical function":         {files: map[string]string{function + "/vendor": "0x15b3", function + "/device": "0x1021"}},
		"another vendor's":            {files: map[string]string{function + "/vendor": "0x8086", function + "/device": "0x101e"}},
		"below a bridge of QEMU":      {files: map[string]string{bus + bridge + "vendor": "0x1b36"}, want: true},
		"firmware of QEMU":            {files: of("QEMU", "Standard PC"), want: true},
		"firmware of OpenStack":       {files: of("RDO", "OpenStack Compute"), want: true},
		"a machine of Hyper-V":        {files: of("Microsoft Corporation", "Virtual Machine"), want: true},
		"a laptop of Microsoft":       {files: of("Microsoft Corporation", "Surface Laptop")},
		"an instance of Amazon":       {files: of("Amazon EC2", "p5.48xlarge"), want: true},
		"a whole machine of Amazon":   {files: of("Amazon EC2", "c5n.metal")},
		"an instance of Google":       {files: of("Google", "Google Compute Engine"), want: true},
		"another machine of Google's": {files: of("Google", "Dragonegg")},
	} {
		root := t.TempDir()
		for path, text := range tc.files {
			writeFile(t, text+"\n", root, path)
		}
		if tc.physical {
			link(t, "../0000:01:00.1", root, function, "physfn")
		}
		if got := inGuest(root, root+"/"+function); got != tc.want {
			t.Errorf("%s: %v", why, got)
		}
	}
	if inGuest(t.TempDir(), "") {
		t.Error("a device without a function")
	}
	hyperV := t.TempDir()
	if !inGuest(hyperV, hyperV+"/devices/LNXSYSTM:00/VMBUS:00/0001/pci0001:00/0001:00:02.0") {
		t.Error("below the bus of Hyper-V")
	}
}
