package pcie

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/collectortest"
	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfstest"
)

// TestSensors: temperatures are read every 30 s, also while one cannot be read, and an error is reported while it
// lasts.
func TestSensors(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		root := sysfstest.Write(t, t.TempDir(), nil)
		write := func(asic, module string) {
			const dir = "sys/bus/pci/devices/0000:1a:00.0/hwmon/hwmon3/"
			sysfstest.Write(t, root.Dir, []byte("-- "+dir+"temp1_input --\n"+asic+"\n-- "+dir+"temp2_input --\n"+module+
				"\n-- "+dir+"temp2_label --\nModule 0\n-- "+dir+"temp2_crit --\n80000\n"))
		}
		source := New(root.Sys(), collectortest.Snapshot(collectortest.Rails(rail.Rail{Name: "0",
			PCIAddress: "0000:1a:00.0"})), collectortest.Budget)
		want := func(what string, faults int, want ...string) {
			t.Helper()
			lines, got, _ := collectortest.ReadLines(t, source)
			if diff := cmp.Diff(want, lines); diff != "" || len(got) != faults {
				t.Errorf("%s: %q, -want +got:\n%s", what, got, diff)
			}
		}
		const labels = `{rail="0",pci_address="0000:1a:00.0",sensor=`
		adapter, module := "rail_adapter_temperature_celsius"+labels+`"temp1"} `, "rail_module_temperature_celsius"+labels+
			`"Module_0"} `
		write("58000", "49500")
		want("at first", 0, adapter+"58", module+"49.5")
		write("x", "83250")
		time.Sleep(collector.FactsEvery - 1)
		want("too early", 0, adapter+"58", module+"49.5")
		time.Sleep(time.Nanosecond)
		hot := "rail_temperature_excess_celsius" + labels + `"Module_0"} 3.25`
		want("later", 1, module+"83.25", hot)
		write("59000", "50000")
		time.Sleep(collector.FactsEvery - 1)
		want("no more often after a fault", 1, module+"83.25", hot)
		time.Sleep(time.Nanosecond)
		want("good again", 0, adapter+"59", module+"50")
	})
}
