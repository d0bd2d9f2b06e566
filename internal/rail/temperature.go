package rail

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Temperature is the reading of an adapter's sensor (Documentation/hwmon/sysfs-interface.rst).
type Temperature struct {
	Sensor   string // its label, such as asic or Module0; without a label its file, such as temp1
	Module   bool   // it belongs to the transceiver or cable
	Celsius  float64
	Critical float64 // temperature at which the adapter throttles or shuts down; 0: unknown
}

// maxSensors limits the sensors of a function: mlx5 has one or a few of the chip and one of the module; bnxt and
// ice have one.
const maxSensors = 16

// ReadTemperatures reads the sensors of the PCI function in dir. Each value can be a firmware command
// (mlx5/core/hwmon.c, bnxt_hwmon.c, ice_hwmon.c). Errors concern the adapter's sensors only: a module may have
// none, or be unplugged.
func ReadTemperatures(dir string) (list []Temperature, errs []error) {
	chips, err := entries(filepath.Join(dir, "hwmon"))
	if err != nil {
		return nil, []error{err}
	}
	for _, chip := range chips {
		path := filepath.Join(dir, "hwmon", chip)
		files, err := entries(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range files {
			sensor, ok := strings.CutSuffix(name, "_input")
			if !ok || !strings.HasPrefix(sensor, "temp") || len(list) == maxSensors {
				continue
			}
			t, known, err := readTemperature(path, sensor)
			if err != nil {
				errs = append(errs, err)
			} else if known {
				list = append(list, t)
			}
		}
	}
	return list, errs
}

// entries lists a directory in order; a missing directory is empty.
func entries(dir string) (names []string, err error) {
	list, err := sysfs.List(dir)
	if err != nil && sysfs.Reason(err) == sysfs.ReasonVanished {
		return nil, nil
	}
	for _, e := range list {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names, err
}

func readTemperature(dir, sensor string) (t Temperature, known bool, err error) {
	t.Sensor, _ = sysfs.ReadString(dir, sensor+"_label") // bnxt and ice have no labels
	t.Module = strings.HasPrefix(strings.ToLower(t.Sensor), "module")
	if t.Sensor == "" {
		t.Sensor = sensor
	}
	t.Celsius, err = readMillidegrees(dir, sensor+"_input")
	if t.Module && (err != nil || t.Celsius == 0) { // 0: the module does not measure (mlx5_hwmon_is_module_mon_cap)
		return t, false, nil
	}
	for _, limit := range []string{"_crit", "_max"} {
		if t.Critical == 0 && err == nil {
			t.Critical, _ = readMillidegrees(dir, sensor+limit)
		}
	}
	return t, err == nil, err
}

func readMillidegrees(dir, name string) (celsius float64, err error) {
	text, err := sysfs.ReadString(dir, name)
	if err != nil {
		return 0, err
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < -100e3 || v > 300e3 {
		return 0, sysfs.Invalid(filepath.Join(dir, name), []byte(text), "not a temperature in thousandths of a degree")
	}
	return float64(v) / 1000, nil
}
