package netdev

import (
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/ethtool"
)

// readModule is the type of [ethtool.ReadModule].
type readModule func(netdev string) (ethtool.Module, error)

// optics is the part of an interface that reads its module, over a slow bus.
type optics struct {
	table  *table
	key    key
	labels [][]string
	files  collector.Files
	ioctl  ethtool.Ioctl
	module readModule
	facts  collector.Facts

	identified bool // verified: it is the interface that sysfs shows
}

func (o *optics) Read(r *collector.Reading) {
	carrier, err := o.files.Attr("carrier").Carrier(r.Time)
	if err != nil || !carrier { // the other part reports an error
		o.facts = collector.Facts{}
		return
	}
	if !o.identified {
		if err := o.identify(); err != nil {
			return // as with the statistics, whose part reports it
		}
		o.identified = true
	}
	o.facts.Read(r, func() { o.read(r) })
}

func (o *optics) identify() error {
	d, err := ethtool.NewDevice(o.key.name, o.ioctl)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // nothing was written to it
	return identify(d, o.key.name, o.files.Dir)
}

// read emits what the module of a port with a carrier measures.
func (o *optics) read(r *collector.Reading) {
	m, err := o.module(o.key.name)
	failUnlessUnsupported(r, err)
	if m.Temperature != nil {
		r.Record(o.table.moduleTemperature, *m.Temperature, nil, o.labels...)
	}
	o.recordPower(r, "receive", m.Receive)
	o.recordPower(r, "transmit", m.Transmit)
}

func (o *optics) recordPower(r *collector.Reading, direction string, lanes []float64) {
	for lane, watts := range lanes {
		r.Record(o.table.modulePower, watts, nil,
			collector.RailLabels(o.key.rails, o.key.name, strconv.Itoa(lane), direction)...)
	}
}

func (o *optics) Close() { o.files.Close() }
