package config

import (
	"fmt"

	"github.com/railscope/railscope/probe"
)

// page is what chunks are a multiple of.
const page = 4096

// Problem is what is wrong with one option of the probe, and what would be
// right.
type Problem struct {
	Key  string // as in the configuration, such as latency_samples; empty: all of it
	Text string // what comes after the key
}

// CheckProbe returns the first figure of o that is out of its range, for options
// that come from a command line; nil when all are good.
func CheckProbe(o probe.Options) *Problem {
	var problems []*Problem
	for _, k := range (probeReader{opts: &o}).keys() {
		if k.check != nil {
			problems = append(problems, k.check())
		}
	}
	return first(append(problems,
		when(o.Chunk%page != 0, "chunk", "must be a multiple of 4KiB, not %s", formatSize(o.Chunk)),
		when(o.Chunk > o.Transfer, "chunk", "%s is more than the transfer, %s", formatSize(o.Chunk), formatSize(o.Transfer)))...)
}

// roundTransfers bounds what one round moves, in transfers: the striped bytes, in
// some rounds half as many over rails alone and as many by TCP, and small ones.
const roundTransfers = 3

// fit lets what is not written follow what is: a default must not be in the way
// of a value that is good by itself.
func (r probeReader) fit() {
	o := r.opts
	if r.at["chunk"] == nil && o.Transfer >= page {
		o.Chunk = min(o.Chunk, o.Transfer/page*page)
	}
	if r.at["timeout"] == nil {
		o.Timeout = min(o.Timeout, o.Interval)
	}
}

// check returns the first thing that is wrong with the whole.
func (r probeReader) check() *Problem {
	if bad := CheckProbe(*r.opts); bad != nil {
		return bad
	}
	o, s := r.opts, r.opts.Security
	proven := s.TokenFile != "" || s.ClientCAFile != ""
	return first(
		when(o.Timeout > o.Interval, "timeout", "%s is more than the interval, %s: a round must end before the next begins", formatDuration(o.Timeout), formatDuration(o.Interval)),
		when(o.Budget/roundTransfers < o.Transfer, "budget", "%s/h is less than one round may move, %s: %d times the transfer (striped, over single rails, and by TCP)",
			formatSize(o.Budget), formatSize(o.Transfer*roundTransfers), roundTransfers),
		when(s.Insecure && s.TokenFile != "", "insecure", "is true, but there is a token_file: with it peers are known; leave one of them out"),
		when(s.Insecure && s.ClientCAFile != "", "insecure", "is true, but there is tls.client_ca_file: with it peers are known; leave one of them out"),
		when(s.CertFile != "" && s.KeyFile == "", "tls", "has cert_file without key_file: both or none"),
		when(s.KeyFile != "" && s.CertFile == "", "tls", "has key_file without cert_file: both or none"),
		when(len(s.ClientAllowedNames) > 0 && s.ClientCAFile == "", "tls", "has client_allowed_names without client_ca_file, which signs the certificates that carry the names"),
		when(o.Listen != "" && s.ClientCAFile != "" && s.CertFile == "", "tls", "has client_ca_file without cert_file and key_file, which answering peers needs"),
		when(o.Listen != "" && !proven && !s.Insecure, "listen", "needs token_file or tls.client_ca_file, so that only peers are answered; or insecure: true, to answer anyone"),
		when(o.Listen == "" && len(o.Peers)+len(o.DNS) == 0, "", "has neither listen nor peers: nobody to answer and nobody to ask"),
	)
}

func first(problems ...*Problem) *Problem {
	for _, p := range problems {
		if p != nil {
			return p
		}
	}
	return nil
}

func when(bad bool, key, format string, args ...any) *Problem {
	if !bad {
		return nil
	}
	return &Problem{Key: key, Text: fmt.Sprintf(format, args...)}
}
