package sampler

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// limitsEvery is how many looks are between two at what a rail could carry while
// its state stays the same: on mlx5 the rate costs firmware commands.
const limitsEvery = 10

// portFiles are the files that a look reads of a rail. They belong to the
// goroutine of the device's looks.
type portFiles struct {
	rail                       rail.Rail
	account                    *account
	state, rate, speed, width  file
	changes                    file // of the interface's carrier; nil where it has none
	netdev                     string
	portKey                    string
	active, known, keyKnown    bool
	untilLimits, changesOpened int
	changed                    uint64 // the count of carrier changes at the last look
	limits                     rail.Limits
}

func (s *Sampler) newPortFiles(r *railLife) *portFiles {
	port := filepath.Join(r.rail.Dir, "ports", strconv.Itoa(r.rail.Port))
	p := &portFiles{rail: r.rail, account: r.account,
		state: s.open(filepath.Join(port, "state")), rate: s.open(filepath.Join(port, "rate")),
		speed: s.open(filepath.Join(r.rail.Dir, "device/current_link_speed")), width: s.open(filepath.Join(r.rail.Dir, "device/current_link_width"))}
	if r.rail.Netdev != "" {
		p.netdev = filepath.Join(s.opts.Sysfs, "class/net", r.rail.Netdev)
		p.changes = s.open(filepath.Join(p.netdev, "carrier_changes"))
	}
	return p
}

func (p *portFiles) close() {
	for _, f := range []file{p.state, p.rate, p.speed, p.width} {
		f.Close()
	}
	if p.changes != nil {
		p.changes.Close()
	}
}

// looks looks at the device's links every second until ctx is done.
func (d *device) looks(ctx context.Context) {
	var ports []*portFiles
	for _, r := range d.rails {
		ports = append(ports, d.s.newPortFiles(r))
	}
	defer func() {
		for _, p := range ports {
			p.close()
		}
	}()
	buf := make([]byte, 128)
	d.s.everySecond(ctx, func() {
		for _, p := range ports {
			p.look(buf, &d.stopped)
		}
	})
}

// look looks at one rail's port. What cannot be read is not known; the rdma
// source tells why.
func (p *portFiles) look(buf []byte, stopped interface{ Load() bool }) {
	active, stateOK := p.readState(buf)
	changes, carrierOK, another := p.readChanges(buf)
	if another || changes != p.changed { // the link was away and may have come back as another
		p.changed, p.untilLimits = changes, 0
	}
	p.readLimits(buf, active, stateOK)
	now := time.Now()
	if stopped.Load() {
		return // another life of the device has the account now
	}
	p.account.mu.Lock()
	defer p.account.mu.Unlock()
	if another {
		p.account.link.forget()
	}
	p.account.link.look(now, active, stateOK, changes, carrierOK)
	p.account.limits = p.limits
}

func (p *portFiles) readState(buf []byte) (active, ok bool) {
	b, err := p.state.Read(buf)
	if err != nil {
		return false, false
	}
	number, _, _ := bytes.Cut(b, []byte(":"))
	id, err := sysfs.ParseUint(number)
	return id == rail.StateActive, err == nil
}

// readChanges returns the kernel's count of the interface's carrier changes;
// another says that it is another interface than at the last look.
func (p *portFiles) readChanges(buf []byte) (changes uint64, ok, another bool) {
	if p.changes == nil {
		return 0, false, false
	}
	b, err := p.changes.Read(buf)
	if err != nil {
		return 0, false, false
	}
	another = p.changes.Opens() != p.changesOpened
	p.changesOpened = p.changes.Opens()
	changes, err = sysfs.ParseUint(b)
	return changes, err == nil, another
}

// readLimits reads what the rail could carry, as the rdma source does for
// rail_capacity_bytes_per_second, when the state has changed and now and then.
func (p *portFiles) readLimits(buf []byte, active, stateOK bool) {
	if !stateOK {
		p.limits, p.known = rail.Limits{}, false
		return
	}
	if p.known && active == p.active && p.untilLimits > 0 {
		p.untilLimits--
		return
	}
	p.known, p.active, p.untilLimits = true, active, limitsEvery-1
	p.limits = rail.Limits{Active: active}
	if !active {
		return // a port that is down tells a rate that it does not have
	}
	if b, err := p.rate.Read(buf); err == nil {
		p.limits.Rate, _ = rail.ParseRate(string(bytes.TrimSpace(b)))
	}
	if p.limits.Rate == 0 {
		p.untilLimits = 0 // look again at once: a port that has just come up
	}
	if !p.keyKnown {
		var id, name string
		if p.netdev != "" {
			id, _ = sysfs.ReadString(p.netdev, "phys_switch_id")
			name, _ = sysfs.ReadString(p.netdev, "phys_port_name")
		}
		p.portKey, p.keyKnown = p.rail.PortKey(id, name), true
	}
	p.limits.PortKey = p.portKey
	if p.rail.PCIAddress == "" {
		return
	}
	p.limits.LinkKey = rail.LinkKey(p.rail.PCIAddress)
	speed, err := p.speed.Read(buf)
	if err != nil {
		return
	}
	transfers, err := rail.ParseLinkSpeed(string(bytes.TrimSpace(speed)))
	if err != nil {
		return
	}
	if b, err := p.width.Read(buf); err == nil {
		if lanes, err := sysfs.ParseUint(b); err == nil && lanes > 0 && lanes <= 64 {
			p.limits.Link = rail.Link{GigaTransfers: transfers, Width: int(lanes)}.BytesPerSecond()
		}
	}
}
