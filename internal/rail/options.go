package rail

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// byPort reports whether a pattern matches device/port: it has a slash. Other patterns match devices.
func byPort(pattern *regexp.Regexp) bool {
	return pattern != nil && strings.Contains(pattern.String(), "/")
}

// excludesDevice reports whether no port of a device can be a rail, so that it need not be examined.
func (o Options) excludesDevice(device string) bool {
	return o.Include != nil && !byPort(o.Include) && !o.Include.MatchString(device) ||
		o.Exclude != nil && !byPort(o.Exclude) && o.Exclude.MatchString(device)
}

func (o Options) excludes(device string, port int) bool {
	return o.Include != nil && !Matches(o.Include, device, port) || o.Exclude != nil && Matches(o.Exclude, device, port)
}

// Matches reports whether a pattern of the configuration matches a port: its device or, if the pattern has a slash,
// device/port.
func Matches(pattern *regexp.Regexp, device string, port int) bool {
	if byPort(pattern) {
		return pattern.MatchString(Key(device, port))
	}
	return pattern.MatchString(device)
}

// names reports whether the configuration gives that name to a rail.
func (o Options) names(name string) bool {
	return slices.Contains(slices.Collect(maps.Values(o.Names)), name)
}

// idle returns the patterns that match no port of a snapshot, as the configuration writes them. Without any RDMA
// port it returns none; devices that could not be examined might match.
func (o Options) idle(s Snapshot) (list []string) {
	if len(s.Rails)+len(s.LeftOut) == 0 || s.Err != nil {
		return nil
	}
	check := func(key string, pattern *regexp.Regexp) {
		if pattern == nil {
			return
		}
		rails := slices.ContainsFunc(s.Rails, func(r Rail) bool { return Matches(pattern, r.Device, r.Port) })
		others := slices.ContainsFunc(s.LeftOut, func(l LeftOut) bool { return Matches(pattern, l.Device, l.Port) })
		if !rails && !others {
			list = append(list, key+": "+pattern.String())
		}
	}
	check("rails.include", o.Include)
	check("rails.exclude", o.Exclude)
	for _, rule := range o.Roles {
		check("rails.roles."+rule.Role, rule.Devices)
	}
	return list
}
