package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// dnsPrefix is before a name of which every address is a peer.
const dnsPrefix = "dns+"

// Bounds on the list of peers, on names among them that are looked up, and on tls.client_allowed_names.
const (
	maxPeers        = 10000
	maxNames        = 16
	maxAllowedNames = 1000
)

// checkPeers checks the peers and sorts them into addresses and names.
func (d *document) checkPeers(p *Probe) error {
	list := d.nodes["probe.peers"]
	if len(p.Peers) > maxPeers {
		return d.errorf(list, "probe.peers has %d peers; %d at most", len(p.Peers), maxPeers)
	}
	written := p.Peers
	p.Peers = nil
	lines := map[string]int{}
	for i, s := range written {
		item := resolve(list.Content[i])
		host, dns := strings.CutPrefix(s, dnsPrefix)
		peer, ok := ParsePeer(host)
		switch {
		case dns && (!ok || isAddress(peer)):
			return d.errorf(item, "a peer with %s must be a name that has an address for each peer, "+
				"such as %srailscope-peers.railscope.svc:%s, not %q", dnsPrefix, dnsPrefix, DefaultPort, s)
		case !ok:
			return d.wrong(item, itemOf+"probe.peers")
		}
		same := sameHost(peer)
		if line, found := lines[same]; found {
			return d.errorf(item, "duplicate peer %s; the first is in line %d", peer, line)
		}
		lines[same] = item.Line
		if dns {
			p.DNS = append(p.DNS, peer)
		} else {
			p.Peers = append(p.Peers, peer)
		}
	}
	if len(p.DNS) > maxNames {
		return d.errorf(list, "probe.peers has %d names with %s; %d at most", len(p.DNS), dnsPrefix, maxNames)
	}
	return nil
}

// checkAllowedNames checks the names that a peer's certificate may have.
func (d *document) checkAllowedNames(names []string) error {
	const path = "probe.tls.client_allowed_names"
	n := d.nodes[path]
	if n != nil && (len(names) == 0 || len(names) > maxAllowedNames) {
		return d.wrong(n, path)
	}
	for i, name := range names {
		if !validCertificateName(name) {
			return d.wrong(resolve(n.Content[i]), itemOf+path)
		}
	}
	return nil
}

// sameHost is equal for hosts that DNS and the network do not distinguish: case, a trailing dot, an IPv4 address in
// IPv6 form.
func sameHost(peer string) string {
	host, port, _ := net.SplitHostPort(peer)
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

// isAddress reports whether the host of host:port is an IP address.
func isAddress(peer string) bool {
	host, _, _ := net.SplitHostPort(peer)
	_, err := netip.ParseAddr(host)
	return err == nil
}

// ParsePeer returns host:port of a peer that is written as host or host:port.
func ParsePeer(s string) (string, bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, DefaultPort
		if inner, found := strings.CutPrefix(s, "["); found {
			if host, found = strings.CutSuffix(inner, "]"); !found || !strings.Contains(host, ":") {
				return "", false
			}
		} else if strings.Contains(s, ":") { // an IPv6 address needs its brackets
			return "", false
		}
	}
	if !validHost(host) || !validTCPPort(port) || port == "0" {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	return net.JoinHostPort(host, port), true
}

func validListen(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && (host == "" || validHost(host)) && validTCPPort(port)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)

func validHost(s string) bool {
	const longest = 254 // of a name in the DNS, with a trailing dot
	a, err := netip.ParseAddr(s)
	if err != nil {
		return len(s) <= longest && hostName.MatchString(s) && !strings.Contains(s, "..")
	}
	return a.Zone() == "" || hostName.MatchString(a.Zone())
}

func validTCPPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && strconv.FormatUint(n, 10) == s
}

// validCertificateName reports whether a certificate can have the name: a DNS name, perhaps with *. before it, or a
// URI.
func validCertificateName(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && len(s) <= 2048 {
		return u.Host != "" || u.Opaque != ""
	}
	host := strings.TrimPrefix(s, "*.")
	_, err := netip.ParseAddr(host)
	return err != nil && validHost(host)
}
