package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// page is what chunks are a multiple of.
const page = 4096

// roundTransfers bounds what one round moves, in transfers: the striped bytes, in some rounds half as many over single
// rails and as many by TCP, and small ones.
const roundTransfers = 3

// Problem is what is wrong with one option of the probe, and what would be right.
type Problem struct {
	Key  string // below probe, such as latency_samples; empty: all of it
	Text string // follows the key
}

// Check returns the first number that is out of its bounds, for options from a command line; nil when all are good.
func (p *Probe) Check() *Problem {
	for _, k := range figureKeys(p) {
		if !k.ok() {
			return &Problem{strings.TrimPrefix(k.Name, "probe."), fmt.Sprintf("must be %s, not %s", k.want, k.text())}
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

// checkProbe checks what is below probe as a whole, once every value is good by itself.
func (d *document) checkProbe(p *Probe, l *Loader) error {
	if err := d.checkPeers(p); err != nil {
		return err
	}
	if err := d.checkAllowedNames(p.TLS.ClientAllowedNames); err != nil {
		return err
	}
	if err := d.checkFiles(p, l); err != nil {
		return err
	}
	// A default must not be in the way of a value that is good by itself.
	if d.nodes["probe.chunk"] == nil {
		p.Chunk = min(p.Chunk, p.Transfer/page*page)
	}
	if d.nodes["probe.timeout"] == nil {
		p.Timeout = min(p.Timeout, p.Interval)
	}
	bad := p.Check()
	if bad == nil {
		bad = p.conflict()
	}
	if bad == nil {
		return nil
	}
	path := strings.TrimSuffix("probe."+bad.Key, ".")
	n := d.nodes[path]
	if n == nil {
		n = d.nodes["probe"]
	}
	return d.errorf(n, "%s %s", path, bad.Text)
}

// conflict returns the first thing that does not go together with another.
func (p *Probe) conflict() *Problem {
	t := p.TLS
	answers, proven := p.Listen != "", p.TokenFile != "" || t.ClientCAFile != ""
	const known = ": peers are known by it, so remove one of the two"
	for _, c := range []struct {
		bad       bool
		key, text string
	}{
		{p.Timeout > p.Interval, "timeout",
			fmt.Sprintf("%v is more than the interval, %v: a round must end before the "+
				"next begins", p.Timeout, p.Interval)},
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
		{answers && !proven && !p.Insecure, "listen",
			"needs token_file or tls.client_ca_file, so that only peers are " +
				"answered; or insecure: true, to answer anyone"},
		{!answers && len(p.Peers)+len(p.DNS) == 0, "",
			"has neither listen nor peers: nobody to answer and nobody to ask"},
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
