package kmsg

import (
	"bytes"
	"strconv"
	"strings"
)

// record is one message of the kernel log.
type record struct {
	facility int    // who wrote it: 0 is the kernel, which user space cannot claim
	sequence uint64 // number since boot
	text     string // with escapes such as \x0a, as the kernel writes them
	pci      string // address of the PCI function that it is about; empty: not known
}

// parse takes a record apart: "priority,sequence,µs,flags,…;text", then " KEY=value" lines
// (Documentation/ABI/testing/dev-kmsg; kernel/printk/printk.c, info_print_ext_header and msg_add_dict_text).
func parse(b []byte) (r record, ok bool) {
	head, rest, ok := bytes.Cut(b, []byte(";"))
	if !ok {
		return record{}, false
	}
	fields := strings.Split(string(head), ",")
	if len(fields) < 4 {
		return record{}, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 16)
	sequence, err2 := strconv.ParseUint(fields[1], 10, 64)
	if err != nil || err2 != nil {
		return record{}, false
	}
	text, properties, _ := strings.Cut(string(rest), "\n")
	r = record{facility: int(priority >> 3), sequence: sequence, text: text}
	for line := range strings.Lines(properties) {
		if device, found := strings.CutPrefix(line, " DEVICE=+pci:"); found {
			r.pci = strings.TrimSpace(device)
		}
	}
	return r, true
}
