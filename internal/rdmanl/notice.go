package rdmanl

import "github.com/railscope/railscope/internal/nlattr"

// Announcement is what the kernel announces about an RDMA device, enum rdma_nl_notify_event_type.
type Announcement uint8

// Announcements since Linux 6.12. Linux 6.13 added those of new names.
const (
	Registered Announcement = iota
	Unregistered
	NetdevAttached
	NetdevDetached
	Renamed
	NetdevRenamed
)

// Notice is one announcement in the group RDMA_NL_GROUP_NOTIFY.
type Notice struct {
	What  Announcement
	Index uint32 // the device
	Port  int    // 0: it is about the device
}

// ParseNotice decodes a message; ok is false for any other and for a malformed one.
func ParseNotice(kind uint16, data []byte) (n Notice, ok bool) {
	const (
		cmdMonitor    = 28
		attrEventType = 102
	)
	if kind != clientNLDEV+cmdMonitor {
		return n, false
	}
	var err error
	index, what := nlattr.Last(data, attrDevIndex, &err), nlattr.Last(data, attrEventType, &err)
	n = Notice{What: Announcement(number(what)), Index: number(index),
		Port: int(number(nlattr.Last(data, attrPortIndex, &err)))}
	return n, err == nil && len(index) == 4 && len(what) == 1
}

// Indices returns the names of all devices by index.
func (c *Client) Indices() (names map[uint32]string, err error) {
	err = c.do(cmdGet, "", func() error {
		if _, err := c.listLocked(); err != nil {
			return err
		}
		names = make(map[uint32]string, len(c.index))
		for name, index := range c.index {
			names[index] = name
		}
		return nil
	})
	return names, err
}
