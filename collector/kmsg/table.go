package kmsg

import "github.com/railscope/railscope/collector"

const (
	refEvents = "docs/kernel-log.md"
	refKmsg   = "Documentation/ABI/testing/dev-kmsg"
)

type table struct {
	collector.Table
	events, lost, unread *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "kmsg"}}
	t.events = t.Group(refEvents, "event", "subject").Counter("kernel_events_total",
		"Messages of the kernel log about rails, GPUs and their PCIe links. A series begins with its first event. "+
			"subject is the rail, GPU, PCI function or interface; other beyond 256 series.", "/dev/kmsg")
	kmsg := t.Group(refKmsg)
	t.lost = kmsg.Counter("kernel_log_lost_messages_total",
		"Messages that were overwritten before they were read: the log is written faster than it is scraped.", "EPIPE")
	t.unread = kmsg.Counter("kernel_log_invalid_messages_total",
		"Messages that are not in the documented format, or larger than 16 KiB.", "/dev/kmsg")
	return t
}
