package config

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/probe"
)

// dnsPrefix is before a name whose addresses are peers, all of them.
const dnsPrefix = "dns+"

// Bounds on the list of peers, and on names among them that are looked up.
const (
	maxPeers = 10000
	maxNames = 16
)

// probeReader reads what is below probe.
type probeReader struct {
	parser
	opts *probe.Options
	at   map[string]*yaml.Node // where each key that is written has its value
}

// probe reads the options of the probe.
func (p parser) probe(n *yaml.Node) (*probe.Options, error) {
	opts := probe.DefaultOptions()
	r := probeReader{parser: p, opts: &opts, at: map[string]*yaml.Node{}}
	keys := r.keys()
	for i, k := range keys {
		keys[i].read = func(n *yaml.Node) error { r.at[k.Name] = n; return k.read(n) }
	}
	if err := p.mapping(n, "probe", keys); err != nil {
		return nil, err
	}
	r.fit()
	if bad := r.check(); bad != nil {
		at := r.at[bad.Key]
		if at == nil {
			at = n
		}
		return nil, p.errorf(at, "probe%s %s", dotted(bad.Key), bad.Text)
	}
	return &opts, nil
}

func dotted(key string) string {
	if key == "" {
		return ""
	}
	return "." + key
}

// word returns the text of a single value, or an error that says what it must
// be.
func (r probeReader) word(n *yaml.Node, key, must string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return "", r.errorf(n, "probe.%s must be %s, not %s", key, must, kindName(n))
	}
	return n.Value, nil
}

func (r probeReader) trafficClass(n *yaml.Node) error {
	const must = "a whole number from 0 to 252 (DSCP × 4)"
	s, err := r.word(n, "traffic_class", must)
	if err != nil {
		return err
	}
	class, err := strconv.ParseUint(s, 10, 8)
	switch {
	case err != nil:
		return r.errorf(n, "probe.traffic_class must be %s, not %q", must, s)
	case class&3 != 0:
		return r.errorf(n, "probe.traffic_class %d sets ECN bits, which belong to the network: write %d (DSCP %d)", class, class&^3, class>>2)
	}
	r.opts.TrafficClass = uint8(class)
	return nil
}

func (r probeReader) memory(n *yaml.Node) error {
	const must = "host"
	s, err := r.word(n, "memory", must)
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(s, "cuda"):
		return r.errorf(n, "probe.memory %q is not there yet: write host", s)
	case s != must:
		return r.errorf(n, "probe.memory must be %s, the only one there is yet, not %q", must, s)
	}
	r.opts.Memory = s
	return nil
}

func (r probeReader) insecure(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		return r.errorf(n, "probe.insecure must be true or false, not %s", kindName(n))
	}
	r.opts.Security.Insecure = strings.EqualFold(n.Value, "true")
	return nil
}

func (r probeReader) name(n *yaml.Node) error {
	const must = "what this node calls itself; without the key it is the host's name"
	s, err := r.word(n, "name", must)
	if err != nil {
		return err
	}
	const longest = 253 // of a name in the DNS
	notPrintable := strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
	if notPrintable || !utf8.ValidString(s) || strings.TrimSpace(s) != s || len(s) > longest {
		return r.errorf(n, "probe.name must be printable, %d bytes at most and without blanks around it, not %q", longest, s)
	}
	r.opts.Name = s
	return nil
}

func (r probeReader) listen(n *yaml.Node) error {
	const must = "host:port, such as 0.0.0.0:" + probe.DefaultPort
	s, err := r.word(n, "listen", must)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host != "" && !validHost(host) || !validTCPPort(port) && port != "0" {
		return r.errorf(n, "probe.listen must be %s, not %q", must, s)
	}
	r.opts.Listen = s
	return nil
}

func (r probeReader) peers(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return nil
	case n.Kind != yaml.SequenceNode:
		return r.errorf(n, "probe.peers must be a list, such as [spark-02, spark-03:%s], not %s", probe.DefaultPort, kindName(n))
	case len(n.Content) > maxPeers:
		return r.errorf(n, "probe.peers has %d peers; %d at most", len(n.Content), maxPeers)
	}
	seen := map[string]int{}
	for _, item := range n.Content {
		item = resolve(item)
		written, dns := strings.CutPrefix(item.Value, dnsPrefix)
		peer, ok := "", false
		if item.Kind == yaml.ScalarNode && item.Tag != "!!null" {
			peer, ok = ParsePeer(written)
		}
		switch {
		case dns && (!ok || isAddress(peer)):
			return r.errorf(item, "a peer that begins with %s must go on with a name that has many addresses, each of them a peer, such as %srailscope-peers.railscope.svc:%s, not %s",
				dnsPrefix, dnsPrefix, probe.DefaultPort, kindName(item))
		case !ok:
			return r.errorf(item, "a peer must be host or host:port, such as spark-02:%s or [fd00::2]:%s, not %s", probe.DefaultPort, probe.DefaultPort, kindName(item))
		}
		same := sameHost(peer)
		if line, twice := seen[same]; twice {
			return r.errorf(item, "the peer %s is there already, in line %d", peer, line)
		}
		seen[same] = item.Line
		if dns {
			r.opts.DNS = append(r.opts.DNS, peer)
		} else {
			r.opts.Peers = append(r.opts.Peers, peer)
		}
	}
	if len(r.opts.DNS) > maxNames {
		return r.errorf(n, "probe.peers has %d names that begin with %s; %d at most", len(r.opts.DNS), dnsPrefix, maxNames)
	}
	return nil
}

// sameHost is alike for what DNS and the network do not tell apart: case, the dot
// at the end of a name, an address of IPv4 within IPv6.
func sameHost(peer string) string {
	host, port, _ := net.SplitHostPort(peer)
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	return net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port)
}

// isAddress reports whether the host of host:port is one.
func isAddress(peer string) bool {
	host, _, _ := net.SplitHostPort(peer)
	_, err := netip.ParseAddr(host)
	return err == nil
}

// ParsePeer returns host:port of what is written as host or host:port.
func ParsePeer(s string) (string, bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, probe.DefaultPort
		if inner, found := strings.CutPrefix(s, "["); found {
			if host, found = strings.CutSuffix(inner, "]"); !found || !strings.Contains(host, ":") {
				return "", false
			}
		} else if strings.Contains(s, ":") { // an address of IPv6 needs its brackets
			return "", false
		}
	}
	if !validHost(host) || !validTCPPort(port) {
		return "", false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	return net.JoinHostPort(host, port), true
}

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?$`)
	tcpPort  = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
)

const longestHost = 254 // of a name in the DNS, with the dot at its end

func validHost(s string) bool {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return len(s) <= longestHost && hostName.MatchString(s) && !strings.Contains(s, "..")
	}
	return a.Zone() == "" || hostName.MatchString(a.Zone())
}

func validTCPPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n <= 65535 && tcpPort.MatchString(s)
}
