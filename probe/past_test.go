package probe

import "testing"

// TestPastOverReload: what is remembered of found peers outlives a reload, and is dropped with the peer.
func TestPastOverReload(t *testing.T) {
	t.Parallel()
	found := newFound(t)
	static := found.opts
	static.DNS = nil
	for _, tc := range []struct {
		why   string
		opts  Options
		peers []string // of the configuration
		list  []string // that the first lookup found
		want  bool
	}{
		{"found peers, before the first lookup", found.opts, nil, nil, true},
		{"found again", found.opts, nil, []string{"10.0.0.2:7"}, true},
		{"no longer found", found.opts, nil, []string{"10.0.0.3:7"}, false},
		{"still in a static list", static, []string{"10.0.0.2:7"}, nil, true},
		{"removed from a static list", static, []string{"10.0.0.3:7"}, nil, false},
	} {
		n := found.node
		n.past.of("10.0.0.2:7", "a").low = 2
		tc.opts.Peers = tc.peers
		f := &foundPeers{Prober: NewProber(n, tc.opts, func(Result) {}, Events{}.withDefaults())}
		if tc.list != nil {
			f.published(tc.list...)
		}
		if got := n.past.peers["10.0.0.2:7"] != nil; got != tc.want {
			t.Errorf("%s: remembered %v, want %v", tc.why, got, tc.want)
		}
	}
}
