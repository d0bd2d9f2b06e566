// Package hostport parses the addresses of peers: host:port, where host is a DNS name or an IP address.
package hostport

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Parse returns host:port for an address in the form host or host:port.
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

// Canonical returns host:port in lower case, without a trailing dot, and with IPv4 addresses not in IPv6 form.
// Addresses that DNS and the network treat as equal are equal in this form, on all nodes.
func Canonical(s string) string {
	host, port, _ := net.SplitHostPort(s)
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

// ValidHost reports whether s is a DNS name or an IP address.
func ValidHost(s string) bool {
	const longest = 254 // maximum length of a DNS name with a trailing dot
	a, err := netip.ParseAddr(s)
	if err != nil {
		return len(s) <= longest && hostName.MatchString(s) && !strings.Contains(s, "..")
	}
	return a.Zone() == "" || hostName.MatchString(a.Zone())
}

// ValidPort reports whether s is a port number, or 0.
func ValidPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == s
}
