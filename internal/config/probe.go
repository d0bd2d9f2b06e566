package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is an invalid option of the probe.
type Problem struct {
	Key  string // below probe, such as latency_samples; empty: all of it
	Text string // follows the key: what is wrong, and what would be valid
}

// Replaced returns the keys below probe of earlier versions that no longer exist, and what to write instead.
func Replaced() map[string]string {
	const why = "no longer exists: a burst is measured over time, not over bytes; "
	return map[string]string{
		"transfer": why + "set burst, 5ms by default",
		"chunk":    why + "the size of a write follows from the rail's rate and burst",
	}
}

// Override sets numbers by key below probe, such as latency_samples, from a command line, except for those that are
// empty. It returns the first problem; nil: all are valid.
func (p *Probe) Override(texts map[string]*string) *Problem {
	for key, why := range Replaced() {
		if text := texts[key]; text != nil && *text != "" {
			return &Problem{key, why}
		}
	}
	for _, k := range figures(p) {
		key := strings.TrimPrefix(k.Name, "probe.")
		if text := texts[key]; text != nil && *text != "" && k.set(*text) != nil {
			return &Problem{key, fmt.Sprintf("must be %s, not %q", k.want, *text)}
		}
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
		{!answers && len(p.Peers)+len(p.DNS)+len(p.Files) == 0, "", "has neither listen nor peers: no peer to answer or " +
			"to ask"},
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
