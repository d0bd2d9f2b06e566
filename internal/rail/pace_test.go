package rail

import (
	"testing"
	"time"

	"github.com/railscope/railscope/internal/sysfstest"
)

// TestNetdevPeriod: the counters of a software device belong to its interface, and are as late as those of the
// interface's driver.
func TestNetdevPeriod(t *testing.T) {
	for name, tc := range map[string]struct {
		driver, lower string
		want          time.Duration
	}{
		"counted by the kernel": {driver: "virtio_net"},
		"read from the adapter": {driver: "igb"},
		"every second":          {driver: "bnxt_en", want: sharedPeriod},
		"every two seconds":     {driver: "e1000", want: sharedPeriod},
		"virtual":               {},
		"on top of another":     {lower: "lower_eth1", want: sharedPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.driver != "" {
				link(t, "../../../../bus/pci/drivers/"+tc.driver, dir, "device/driver")
			}
			if tc.lower != "" {
				link(t, "../eth1", dir, tc.lower)
			}
			if got := interfacePeriod(dir); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestNetdevPeriodFound: the finder determines the driver of the interface below a software device.
func TestNetdevPeriodFound(t *testing.T) {
	root := sysfstest.Unpack(t, "testdata/rxe-bonded.txtar")
	for netdev, driver := range map[string]string{"eth0": "virtio_net", "eth1": "e1000"} {
		link(t, "../../../../bus/pci/drivers/"+driver, root.Sys("class/net"), netdev, "device/driver")
	}
	rails := NewFinder(root.Sys(), Options{}, nil, time10).Snapshot().Rails
	if len(rails) != 2 || rails[0].NetdevPeriod != 0 || rails[1].NetdevPeriod != sharedPeriod {
		t.Errorf("%+v", rails)
	}
}
