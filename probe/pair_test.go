package probe

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
)

func prefixes(texts string) [][]netip.Prefix {
	var all [][]netip.Prefix
	for part := range strings.SplitSeq(texts, "|") {
		var list []netip.Prefix
		for text := range strings.FieldsSeq(part) {
			list = append(list, netip.MustParsePrefix(text))
		}
		all = append(all, list)
	}
	return all
}

func TestPairRails(t *testing.T) {
	for _, tc := range []struct {
		why               string
		ownNames, own     string
		peerNames, theirs string
		want              string
	}{
		{"alike", "0 1", "10.0.0.1/24|10.0.1.1/24", "0 1", "10.0.0.2/24|10.0.1.2/24", "0-0 1-1"},
		{"crossed cables: the subnet has the last word", "0 1", "10.0.0.1/24|10.0.1.1/24", "0 1",
			"10.0.1.2/24|10.0.0.2/24", "0-1 1-0"},
		{"named on one side only", "east west", "10.0.0.1/24|10.0.1.1/24", "0 1", "10.0.1.2/24|10.0.0.2/24",
			"east-1 west-0"},
		{"routed: nothing but names", "0 1", "10.0.0.1/31|10.0.1.1/31", "0 1", "10.9.0.1/31|10.9.1.1/31", "0-0 1-1"},
		{"one subnet for all: names decide", "0 1", "10.0.0.1/16|10.0.1.1/16", "0 1", "10.0.0.2/16|10.0.1.2/16",
			"0-0 1-1"},
		{"one subnet, other names: in order", "a b", "10.0.0.1/16|10.0.1.1/16", "0 1", "10.0.0.2/16|10.0.1.2/16",
			"a-0 b-1"},
		{"the peer has fewer", "0 1 2", "10.0.0.1/24|10.0.1.1/24|10.0.2.1/24", "0", "10.0.1.2/24", "0-none 1-0 2-none"},
		{"the peer has none", "0", "10.0.0.1/24", "", "", "0-none"},
		{"no addresses known", "0 1", "|", "1 0", "|", "0-0 1-1"},
		{"second address of an interface", "0", "10.0.0.1/24 10.5.0.1/24", "x", "10.5.0.2/24", "0-x"},
		{"link-local addresses are everywhere", "0 1", "fe80::1/64|fe80::2/64", "a b", "fe80::3/64|fe80::4/64",
			"0-none 1-none"},
		{"IPv6", "0", "fd00:1::1/64", "x", "fd00:1::2/64", "0-x"},
	} {
		peerNames := strings.Fields(tc.peerNames)
		ownNames := strings.Fields(tc.ownNames)
		theirs := prefixes(tc.theirs)
		var got []string
		var own []node.LocalRail
		for i, prefixes := range prefixes(tc.own) {
			own = append(own, node.LocalRail{Rail: rail.Rail{Name: ownNames[i]}, Prefixes: prefixes})
		}
		var peers []protocol.HelloRail
		for i, name := range peerNames {
			peers = append(peers, protocol.HelloRail{Name: name, Prefixes: theirs[i]})
		}
		for i, j := range round.PairRails(own, peers) {
			peer := "none"
			if j >= 0 {
				peer = peerNames[j]
			}
			got = append(got, fmt.Sprintf("%s-%s", ownNames[i], peer))
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.why, s, tc.want)
		}
	}
}
