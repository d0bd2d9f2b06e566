package nccl

import (
	"bytes"
	"slices"
	"strings"
)

// warnRule is a kind of warnings, and words of which each shows that a warning is of that kind.
type warnRule struct {
	kind  string
	words []string
}

func warnRules() []warnRule {
	return []warnRule{
		{"ras", []string{" ras/"}}, // by its file: a port that is taken hurts no job
		{"completion_error", []string{"Got completion ", "Got CQE with error"}},
		{"gid_change", []string{"GID table changed"}},
		{"async_event", []string{"async event", "async fatal event", "unknown event type"}},
		{"fatal", []string{"encountered a fatal error"}},
		{"no_device", []string{"No device found", "No EFA device found", "No IP interface found", "no interface found",
			"No usable listening interface", "Failed to initialize any NET plugin"}},
		{"registration", []string{"ibv_reg_mr", "ibv_reg_dmabuf_mr", "register memory"}},
		{"mismatch", []string{"ismatch", "incompatible"}},
		{"verbs", []string{"ibv_", "mlx5dv_", "NET/IB"}},
		{"timeout", []string{"imed out", "imeout"}},
		{"cuda", []string{"Cuda failure", "CUDA", "cuda"}},
		{"shm", []string{"shared memory", "shm", "posix_fallocate"}},
		{"socket", []string{"ocket", "Connect", "onnection ", "bind failed", "Net : ", "accept", "Accept"}},
		{"bootstrap", []string{"ootstrap"}},
		{"topology", []string{"opology", "Attribute ", "XML", "graph/"}},
		{"plugin", []string{"lugin", "NET/OFI"}},
		{"other", nil},
	}
}

// statusNames are the statuses of completions that NCCL's connections (RC) can have, enum ibv_wc_status of verbs.h
// without IBV_WC_ and _ERR, by number; other is every status that has no name here.
func statusNames() []string {
	return []string{0: "other", 1: "loc_len", 2: "loc_qp_op", 4: "loc_prot", 5: "wr_flush", 7: "bad_resp",
		8: "loc_access", 9: "rem_inv_req", 10: "rem_access", 11: "rem_op", 12: "retry_exc", 13: "rnr_retry_exc",
		19: "fatal", 20: "resp_timeout", 21: "general"}
}

// warning classifies the text of a warning. file is what precedes it: "[2025-01-01 12:00:00] host:pid:tid [0]
// misc/socket.cc:72 (function) ". A warning of NCCL is rare, so this one may allocate.
func warning(file, text []byte) event {
	whole := string(file) + string(text)
	e := event{kind: warned}
	for _, rule := range warnRules() {
		e.warning = rule.kind
		if slices.ContainsFunc(rule.words, func(word string) bool { return strings.Contains(whole, word) }) {
			break
		}
	}
	if strings.Contains(whole, "Got completion ") {
		e.status = completionStatus(text)
	}
	return e
}

// completionStatus reads "with status=IBV_WC_RETRY_EXC_ERR(12) opcode=…" (from 2.27 on), "with status=12 opcode=…", and
// "with error 12, opcode …" (until 2.19).
func completionStatus(text []byte) string {
	n, ok := numberAfter(text, " with error ")
	if !ok {
		_, status, _ := bytes.Cut(text, []byte(" with status="))
		word, _, _ := bytes.Cut(status, []byte(" "))
		if n, ok = numberAfter(word, "("); !ok {
			n, ok = numberAfter(word, "")
		}
	}
	if names := statusNames(); ok && n < len(names) && names[n] != "" {
		return names[n]
	}
	return "other"
}
