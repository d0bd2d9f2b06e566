package config

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
	validPort = regexp.MustCompile(`^([^/:\s]+)/([1-9][0-9]{0,2})$`)
	validPCI  = regexp.MustCompile(`^([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])(?:/([1-9][0-9]{0,2}))?$`)
)

func (d *document) checkRails(r *Rails) error {
	n := d.nodes["rails.names"]
	if n == nil || isNull(n) {
		return nil
	}
	r.Ports = map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], resolve(n.Content[i+1])
		path := "rails.names." + name.Value
		port, device, ok := parsePort(value.Value)
		switch {
		case !validName.MatchString(name.Value):
			return d.errorf(name, "invalid rail name %q: use letters, digits, _ . -, 32 at most", name.Value)
		case !ok:
			return d.wrong(value, path)
		case r.Ports[port] != "":
			return d.errorf(value, "%s already has the name %s", value.Value, r.Ports[port])
		case device != "" && r.Include != nil && !r.Include.MatchString(device):
			return d.errorf(value, "%s is %s, which rails.include %q excludes", path, value.Value, r.Include)
		}
		r.Ports[port] = name.Value
	}
	return nil
}

// parsePort returns the key of a port that is written as device/port or PCI address, and its device in the first form.
func parsePort(s string) (key, device string, ok bool) {
	if m := validPCI.FindStringSubmatch(s); m != nil {
		port, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		return rail.Key(strings.ToLower(m[1]), port), "", true
	}
	m := validPort.FindStringSubmatch(s)
	if m == nil {
		return "", "", false
	}
	port, _ := strconv.Atoi(m[2])
	return rail.Key(m[1], port), m[1], true
}
