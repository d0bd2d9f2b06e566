// Package kernellog reads the messages of the kernel log, /dev/kmsg.
package kernellog

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Record is one message of the kernel log.
type Record struct {
	Facility int           // origin: 0 is the kernel, which user space cannot fake
	Sequence uint64        // number since boot
	At       time.Duration // time since boot on the kernel's local_clock, which stops during suspend
	Text     string        // with escapes such as \x0a, as the kernel writes them
	PCI      string        // address of the PCI function that it concerns; empty: not known
}

// Kernel is the facility of the kernel (LOG_KERN). User space can only write other facilities to /dev/kmsg.
const Kernel = 0

// Parse parses a record: "priority,sequence,µs,flags,…;text", then " KEY=value" lines
// (Documentation/ABI/testing/dev-kmsg; kernel/printk/printk.c, info_print_ext_header and msg_add_dict_text).
func Parse(b []byte) (r Record, ok bool) {
	head, rest, ok := bytes.Cut(b, []byte(";"))
	if !ok {
		return Record{}, false
	}
	fields := strings.Split(string(head), ",")
	if len(fields) < 4 {
		return Record{}, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 16)
	sequence, err2 := strconv.ParseUint(fields[1], 10, 64)
	if err != nil || err2 != nil {
		return Record{}, false
	}
	text, properties, _ := strings.Cut(string(rest), "\n")
	r = Record{Facility: int(priority >> 3), Sequence: sequence, Text: text}
	if micros, err := strconv.ParseInt(fields[2], 10, 48); err == nil && micros >= 0 {
		r.At = time.Duration(micros) * time.Microsecond
	}
	for line := range strings.Lines(properties) {
		if device, found := strings.CutPrefix(line, " DEVICE=+pci:"); found {
			r.PCI = strings.TrimSpace(device)
		}
	}
	return r, true
}
