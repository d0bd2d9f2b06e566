package notice

import (
	"path"
	"strings"
)

// DeviceEvent is an event of a device: Documentation/ABI/testing/sysfs-uevent, lib/kobject_uevent.c.
type DeviceEvent struct {
	Action    string // add, remove, move, change, bind, unbind, online, offline
	Subsystem string // for example infiniband, infiniband_verbs, pci
	Name      string // last element of the device's path, for example mlx5_0
	Old       string // its name before the action move; otherwise empty
}

// ParseDevice decodes a message of the group [Devices]; ok is false for one in another format, such as udev's own.
func ParseDevice(data []byte) (e DeviceEvent, ok bool) {
	header, fields, _ := strings.Cut(string(data), "\x00")
	if !strings.Contains(header, "@") {
		return e, false
	}
	for field := range strings.SplitSeq(fields, "\x00") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "ACTION":
			e.Action = value
		case "SUBSYSTEM":
			e.Subsystem = value
		case "DEVPATH":
			e.Name = path.Base(value)
		case "DEVPATH_OLD":
			e.Old = path.Base(value)
		}
	}
	return e, e.Action != "" && e.Subsystem != "" && e.Name != ""
}
