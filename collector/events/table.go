package events

import "github.com/railscope/railscope/collector"

const (
	refEvents = "docs/events.md"
	refSocket = "net/netlink/af_netlink.c"
)

type table struct {
	collector.Table
	events, last, lost *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "events"}}
	t.events = t.Group(refEvents, "rail", "event").Counter("rail_events_total",
		"Changes of a rail's device, port, interface and addresses that the kernel announced. A series begins with "+
			"its first event.", "netlink", "async_event")
	t.last = t.Group(refEvents, "rail").Gauge("rail_last_event_timestamp_seconds",
		"Time at which the last event of the rail was received. Absent before the first one.", "netlink", "async_event")
	t.lost = t.Group(refSocket).Counter("rail_events_lost_total",
		"Times at which announcements of the kernel were lost, because there were too many. The rails are read again "+
			"each time.", "ENOBUFS")
	return t
}
