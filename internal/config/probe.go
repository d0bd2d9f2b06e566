package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	page = 4096 // a chunk is a multiple of it
	// roundTransfers is the most that one round moves, in transfers: the striped bytes, in some rounds half as many over
	// single rails and as many by TCP, and small ones.
	roundTransfers = 3
)

// Problem is an invalid option of the probe.
type Problem struct {
	Key  string // below probe, such as latency_samples; empty: all of it
	Text string // follows the key: what is wrong, and what would be valid
}

// Override sets numbers by key below probe, such as latency_samples, from a command line, except for those that are
// empty. It returns the first problem; nil: all are valid.
func (p *Probe) Override(texts map[string]*string) *Problem {
	for _, k := range figures(p) {
		key := strings.TrimPrefix(k.Name, "probe.")
		if text := texts[key]; text != nil && *text != "" && k.set(*text) != nil {
			return &Problem{key, fmt.Sprintf("must be %s, not %q", k.want, *text)}
		}
	}
	if chunk := texts["chunk"]; chunk == nil || *chunk == "" {
		p.Chunk = min(p.Chunk, max(p.Transfer/page*page, page))
	}
	return p.Check()
}

// Check returns the first number that is out of its bounds; nil when all are valid.
func (p *Probe) Check() *Problem {
	for _, k := range figures(p) {
		if value := k.invalid(); value != "" {
			return &Problem{strings.TrimPrefix(k.Name, "probe."), fmt.Sprintf("must be %s, not %s", k.want, value)}
		}
	}
	switch tc := p.TrafficClass; {
	case p.Chunk%page != 0:
		return &Problem{"chunk", fmt.Sprintf("must be a multiple of 4KiB, not %v", p.Chunk)}
	case p.Chunk > p.Transfer:
		return &Problem{"chunk", fmt.Sprintf("%v is more than the transfer, %v", p.Chunk, p.Transfer)}
	case tc&3 != 0:
		return &Problem{"traffic_class", fmt.Sprintf("%d sets the ECN bits, which belong to the network: "+
			"write %d (DSCP %d)", tc, tc&^3, tc>>2)}
	}
	return nil
}

// checkProbe checks what is below probe as a whole, after each value.
func (d *document) checkProbe(p *Probe, l *Loader) error {
	if err := cmp.Or(d.checkPeers(p), d.checkAllowedNames(p.TLS.ClientAllowedNames)); err != nil {
		return err
	}
	if err := d.checkFiles(p, l); err != nil {
		return err
	}
	// A default must not conflict with a value that is valid.
	if d.nodes["probe.chunk"] == nil {
		p.Chunk = min(p.Chunk, p.Transfer/page*page)
	}
	if d.nodes["probe.timeout"] == nil {
		p.Timeout = min(p.Timeout, p.Interval)
	}
	bad := cmp.Or(p.Check(), p.conflict())
	if bad == nil {
		return nil
	}
	path := strings.TrimSuffix("probe."+bad.Key, ".")
	return d.errorf(cmp.Or(d.nodes[path], d.nodes["probe"]), "%s %s", path, bad.Text)
}

// conflict returns the first conflict between two options.
func (p *Probe) conflict() *Problem {
	t := p.TLS
	answers, proven := p.Listen != "", p.TokenFile != "" || t.ClientCAFile != ""
	const known = ": peers are known by it, so remove one of the two"
	for _, c := range []struct {
		bad       bool
		key, text string
	}{
		{p.Timeout > p.Interval, "timeout", fmt.Sprintf("%v is more than the interval, %v: a round must end before "+
			"the next begins", p.Timeout, p.Interval)},
		{Size(p.Budget)/roundTransfers < p.Transfer, "budget", fmt.Sprintf("%v is less than one round may move, %v: "+
			"%d times the transfer (striped, over single rails, and by TCP)", p.Budget, p.Transfer*roundTransfers,
			roundTransfers)},
		{p.Insecure && p.TokenFile != "", "insecure", "is true, but there is a token_file" + known},
		{p.Insecure && t.ClientCAFile != "", "insecure", "is true, but there is tls.client_ca_file" + known},
		{t.CertFile != "" && t.KeyFile == "", "tls", "has cert_file without key_file: write both or neither"},
		{t.KeyFile != "" && t.CertFile == "", "tls", "has key_file without cert_file: write both or neither"},
		{len(t.ClientAllowedNames) > 0 && t.ClientCAFile == "", "tls", "has client_allowed_names without " +
			"client_ca_file, the authority that signs the certificates with these names"},
		{answers && t.ClientCAFile != "" && t.CertFile == "", "tls", "has client_ca_file without cert_file and " +
			"key_file, which answering peers needs"},
		{answers && !proven && !p.Insecure, "listen", "needs token_file or tls.client_ca_file, so that only peers are " +
			"answered; or insecure: true, to answer anyone"},
		{!answers && len(p.Peers)+len(p.DNS) == 0, "", "has neither listen nor peers: no peer to answer or to ask"},
	} {
		if c.bad {
			return &Problem{c.key, c.text}
		}
	}
	return nil
}

func validNodeName(s string) bool {
	const longest = 253 // of a name in the DNS
	return len(s) <= longest && utf8.ValidString(s) && strings.TrimSpace(s) == s &&
		!slices.ContainsFunc([]rune(s), func(c rune) bool { return !unicode.IsPrint(c) })
}
