package probe

import (
	"encoding/json"
	"testing"

	"github.com/railscope/railscope/probe/internal/protocol"
)

func FuzzChallenge(f *testing.F) {
	f.Add([]byte(`{"version":4,"macs":["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]}`))
	f.Add([]byte(`{"version":4,"mac":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","address":"10.0.0.2:10092"}`))
	f.Add([]byte(`{"version":5,"later":{"a":[1]}}`))
	f.Add([]byte(`{"version":-1,"nonce":"AA==","address":"","mac":"none"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var ask protocol.ProofRequest
		if json.Unmarshal(in, &ask) == nil && ask.Check() == nil &&
			(ask.Version < 1 || ask.Version == protocol.ProtocolVersion && len(ask.Proofs) > protocol.MaxTokens) {
			t.Errorf("accepted %+v", ask)
		}
		var reply protocol.ProofReply
		if json.Unmarshal(in, &reply) == nil && reply.Check() == nil && (reply.Version < 1 ||
			reply.Version == protocol.ProtocolVersion && len(reply.Proof) != 0 &&
				len(reply.Proof) != protocol.ProofSize) {
			t.Errorf("accepted %+v", reply)
		}
	})
}
