package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/railscope/railscope/internal/hostport"
	"github.com/railscope/railscope/probe/options"
)

// Problem is an invalid option of the probe.
type Problem struct {
	Key  string // key below probe, such as latency_samples; empty: the whole section
	Text string // text after the key: what is wrong, and what would be valid
}

// Replaced returns the keys below probe of earlier versions that no longer exist, and their replacements.
func Replaced() map[string]string {
	const why = "no longer exists: a burst is measured over time, not over bytes; "
	return map[string]string{
		"transfer": why + "set burst, 5ms by default",
		"chunk":    why + "the size of a write follows from the rail's rate and burst",
	}
}

// Override sets numbers of p from a command line, by key below probe, such as latency_samples; empty ones set nothing.
// It returns the first problem; nil: all are valid.
func Override(p *options.Options, texts map[string]*string) *Problem {
	for key, why := range Replaced() {
		if text := texts[key]; text != nil && *text != "" {
			return &Problem{key, why}
		}
	}
	for _, k := range figures(p) {
		key := strings.TrimPrefix(k.Name, "probe.")
		if text := texts[key]; text != nil && *text != "" && yaml.Unmarshal([]byte(*text), k.into) != nil {
			return &Problem{key, fmt.Sprintf("must be %s, not %q", k.want, *text)}
		}
	}
	return Check(p)
}

// Check returns the first number of p that is out of range; nil if all are valid.
func Check(p *options.Options) *Problem {
	for _, k := range figures(p) {
		if value := k.invalid(); value != "" {
			return &Problem{strings.TrimPrefix(k.Name, "probe."), fmt.Sprintf("must be %s, not %s", k.want, value)}
		}
	}
	return nil
}

// checkProbe checks the section probe as a whole, after each value.
func (d *document) checkProbe(p *options.Options, l *Loader) error {
	if err := cmp.Or(d.checkExtras(p), d.checkPeers(p), d.checkAllowedNames(&p.Security)); err != nil {
		return err
	}
	if err := d.checkFiles(&p.Security, l); err != nil {
		return err
	}
	// A default must not conflict with a valid value.
	if d.nodes["probe.timeout"] == nil {
		p.Timeout = min(p.Timeout, p.Interval)
	}
	bad := cmp.Or(Check(p), conflict(p))
	if bad == nil {
		return nil
	}
	path := strings.TrimSuffix("probe."+bad.Key, ".")
	return d.errorf(cmp.Or(d.nodes[path], d.nodes["probe"]), "%s %s", path, bad.Text)
}

func conflict(p *options.Options) *Problem {
	s := p.Security
	answers, proven := p.Listen != "", s.TokenFile != "" || s.ClientCAFile != ""
	const known = ": peers are known by it, so remove one of the two"
	for _, c := range []struct {
		bad       bool
		key, text string
	}{
		{p.Timeout > p.Interval, "timeout", fmt.Sprintf("%v is more than the interval, %v: a round must end before "+
			"the next begins", Duration(p.Timeout), Duration(p.Interval))},
		{p.GapWait > p.Interval/3, "gap_wait", fmt.Sprintf("%v is more than a third of the interval of %v: raise the "+
			"interval or lower it", Duration(p.GapWait), Duration(p.Interval))},
		{s.Insecure && s.TokenFile != "", "insecure", "is true, but there is a token_file" + known},
		{s.Insecure && s.ClientCAFile != "", "insecure", "is true, but there is tls.client_ca_file" + known},
		{s.CertFile != "" && s.KeyFile == "", "tls", "has cert_file without key_file: write both or neither"},
		{s.KeyFile != "" && s.CertFile == "", "tls", "has key_file without cert_file: write both or neither"},
		{len(s.ClientAllowedNames) > 0 && s.ClientCAFile == "", "tls", "has client_allowed_names without " +
			"client_ca_file, the authority that signs the certificates with these names"},
		{answers && s.ClientCAFile != "" && s.CertFile == "", "tls", "has client_ca_file without cert_file and " +
			"key_file, which answering peers needs"},
		{answers && !proven && !s.Insecure, "listen", "needs token_file or tls.client_ca_file, so that only peers " +
			"are answered; or insecure: true, to answer anyone"},
		{!answers && len(p.Peers)+len(p.DNS)+len(p.Files) == 0, "", "has neither listen nor peers: no peer to answer " +
			"or to ask"},
	} {
		if c.bad {
			return &Problem{c.key, c.text}
		}
	}
	return nil
}

func validNodeName(s string) bool {
	const longest = 253 // maximum length of a DNS name
	return len(s) <= longest && utf8.ValidString(s) && strings.TrimSpace(s) == s &&
		!slices.ContainsFunc([]rune(s), func(c rune) bool { return !unicode.IsPrint(c) })
}

// Prefixes of a name whose addresses are all nodes, and of files that list nodes.
const (
	dnsPrefix  = "dns+"
	filePrefix = "file:"
)

// Limits of peers, of names and patterns of files among them, and of tls.client_allowed_names.
const (
	maxPeers        = 10000
	maxNames        = 16
	maxAllowedNames = 1000
)

// extraWords returns the kinds of extra measurements that scheduled rounds can make.
func extraWords() (words []string) {
	for _, e := range options.ScheduledExtras() {
		words = append(words, string(e.Kind))
	}
	return words
}

// checkExtras sets the extra measurements from the words of the file.
func (d *document) checkExtras(p *options.Options) error {
	const path = "probe.extras"
	known := extraWords()
	for i, word := range d.extras {
		at := slices.Index(known, word)
		if at < 0 || slices.Contains(d.extras[:i], word) {
			return d.errorf(d.nodes[path], "%s must be %s, not %q", path, wanted(d.table, path), word)
		}
		p.Extras = append(p.Extras, options.ScheduledExtras()[at])
	}
	return nil
}

// checkPeers checks the peers, and moves names to look up from p.Peers to p.DNS, and patterns of files to p.Files.
func (d *document) checkPeers(p *options.Options) error {
	list := d.nodes["probe.peers"]
	if len(p.Peers) > maxPeers {
		return d.errorf(list, "probe.peers has %d peers; %d at most", len(p.Peers), maxPeers)
	}
	written := p.Peers
	p.Peers = nil
	lines := map[string]int{}
	for i, s := range written {
		item := resolve(list.Content[i])
		pattern, file := strings.CutPrefix(s, filePrefix)
		host, dns := strings.CutPrefix(s, dnsPrefix)
		peer, ok := hostport.Parse(host, options.DefaultPort)
		name, same := "peer "+peer, hostport.Canonical(peer)
		switch {
		case file:
			pattern = filepath.Clean(pattern)
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(d.file), pattern)
			}
			if !validPeerFile(pattern) {
				return d.errorf(item, "a peer with %s must be JSON or YAML files, with * only in the last element, "+
					"such as %s/etc/railscope/peers/*.yml, not %q", filePrefix, filePrefix, s)
			}
			name, same = s, filePrefix+pattern
		case dns && (!ok || isAddress(peer)):
			return d.errorf(item, "a peer with %s must be a name that has an address for each peer, "+
				"such as %srailscope-peers.railscope.svc:%s, not %q", dnsPrefix, dnsPrefix, options.DefaultPort, s)
		case !ok:
			return d.wrong(item, itemOf+"probe.peers")
		}
		if line, found := lines[same]; found {
			return d.errorf(item, "duplicate %s; the first is in line %d", name, line)
		}
		lines[same] = item.Line
		switch {
		case file:
			p.Files = append(p.Files, pattern)
		case dns:
			p.DNS = append(p.DNS, peer)
		default:
			p.Peers = append(p.Peers, peer)
		}
	}
	if n := len(p.DNS) + len(p.Files); n > maxNames {
		return d.errorf(list, "probe.peers has %d items with %s or %s; %d at most", n, dnsPrefix, filePrefix, maxNames)
	}
	return nil
}

// validPeerFile reports whether a pattern names files in the form that Prometheus' file_sd allows: by their
// extension, with wildcards in the last element.
func validPeerFile(pattern string) bool {
	dir, last := filepath.Split(pattern)
	_, err := filepath.Match(last, "")
	return err == nil && !strings.ContainsAny(dir, "*?[\\") &&
		slices.Contains([]string{".json", ".yml", ".yaml"}, strings.ToLower(filepath.Ext(last)))
}

func (d *document) checkAllowedNames(s *options.Security) error {
	const path = "probe.tls.client_allowed_names"
	n, names := d.nodes[path], s.ClientAllowedNames
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

func isAddress(peer string) bool {
	host, _, _ := net.SplitHostPort(peer)
	_, err := netip.ParseAddr(host)
	return err == nil
}

func validListen(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && (host == "" || hostport.ValidHost(host)) && hostport.ValidPort(port)
}

// validCertificateName reports whether a name can be in a certificate: a DNS name, which may begin with *., or a
// URI.
func validCertificateName(s string) bool {
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && len(s) <= 2048 {
		return u.Host != "" || u.Opaque != ""
	}
	host := strings.TrimPrefix(s, "*.")
	_, err := netip.ParseAddr(host)
	return err != nil && hostport.ValidHost(host)
}
