// Package hostport parses the addresses of peers: host:port, where host is a name in the DNS or an IP address.
package hostport

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Parse returns the host:port that is written as host or host:port.
func Parse(s, defaultPort string) (string, bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port, err = net.SplitHostPort(s + ":" + defaultPort)
	}
	if err != nil || !ValidHost(host) || !ValidPort(port) || port == "0" {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	return net.JoinHostPort(host, port), true
}

// Canonical returns host:port in lower case, without a trailing dot, and an IPv4 address not in IPv6 form: what DNS and
// the network do not distinguish is equal in this form, on all nodes.
func Canonical(s string) string {
	host, port, _ := net.SplitHostPort(s)
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// ValidHost reports whether s is a name in the DNS or an IP address.
func ValidHost(s string) bool {
	const longest = 254 // of a name in the DNS, with a trailing dot
	a, err := netip.ParseAddr(s)
	if err != nil {
		return len(s) <= longest && hostName.MatchString(s) && !strings.Contains(s, "..")
	}
	return a.Zone() == "" || hostName.MatchString(a.Zone())
}

// ValidPort reports whether s is the number of a port, or 0.
func ValidPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == s
}
