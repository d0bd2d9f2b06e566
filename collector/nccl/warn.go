package nccl

import (
	"bytes"
	"strings"
)

// warnKind is what a warning is about: an index into warnKinds.
type warnKind int

// warnKinds are the kinds of warnings there are, in the order in which they are
// tried: the first of which one word is in the warning is its kind.
func warnKinds() []warnRule {
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

// warnRule is one row of warnKinds.
type warnRule struct {
	kind  string
	words []string
}

// completed is the status of a completion, enum ibv_wc_status of verbs.h; 0 is
// a success, so none.
type completed int

// statusOther stands for every status that completionNames does not have.
const statusOther completed = -1

// completionNames are the statuses that NCCL's connections (RC) can have,
// without IBV_WC_ and _ERR, by number.
func completionNames() []string {
	return []string{1: "loc_len", 2: "loc_qp_op", 4: "loc_prot", 5: "wr_flush", 7: "bad_resp", 8: "loc_access",
		9: "rem_inv_req", 10: "rem_access",
		11: "rem_op", 12: "retry_exc", 13: "rnr_retry_exc", 19: "fatal", 20: "resp_timeout", 21: "general"}
}

// warning classifies the text of a warning. file is what precedes it:
// "[2025-01-01 12:00:00] host:pid:tid [0] misc/socket.cc:72 (function) ". A
// warning of NCCL is rare, so this one may allocate.
func warning(file, text []byte, each func(event)) {
	whole := string(file) + string(text)
	e := event{kind: warned}
	for i, rule := range warnKinds() {
		e.warn = warnKind(i)
		if contains(whole, rule.words) {
			break
		}
	}
	if strings.Contains(whole, "Got completion ") {
		e.status = completionStatus(text)
	}
	each(e)
}

func contains(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// completionStatus reads "with status=IBV_WC_RETRY_EXC_ERR(12) opcode=…" (from
// 2.27 on), "with status=12 opcode=…", and "with error 12, opcode …" (until
// 2.19).
func completionStatus(text []byte) completed {
	n, ok := numberAfter(text, " with error ")
	if !ok {
		_, status, found := bytes.Cut(text, []byte(" with status="))
		if !found {
			return statusOther
		}
		word, _, _ := bytes.Cut(status, []byte(" "))
		if n, ok = numberAfter(word, "("); !ok {
			n, ok = numberAfter(word, "")
		}
	}
	if names := completionNames(); !ok || n >= len(names) || names[n] == "" {
		return statusOther
	}
	return completed(n)
}
