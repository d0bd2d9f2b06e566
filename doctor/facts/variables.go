package facts

import "strings"

// Number reads a parameter as NCCL does, by strtoll with base 0
// (src/misc/param.cc): what follows the number is ignored, and what is no number
// is 0.
func Number(text string) int64 {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	negative := strings.HasPrefix(text, "-")
	if negative || strings.HasPrefix(text, "+") {
		text = text[1:]
	}
	base, digits := int64(10), "0123456789"
	switch {
	case strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X"):
		base, digits, text = 16, "0123456789abcdef", text[2:]
	case strings.HasPrefix(text, "0"):
		base, digits = 8, "01234567"
	}
	var n int64
	for _, r := range strings.ToLower(text) {
		d := strings.IndexRune(digits, r)
		if d < 0 || n > 1<<40 {
			break
		}
		n = n*base + int64(d)
	}
	if negative {
		return -n
	}
	return n
}

// GIDIndex is NCCL_IB_GID_INDEX, negative if NCCL chooses itself.
func GIDIndex(vars map[string]string) int {
	text, set := vars["NCCL_IB_GID_INDEX"]
	if !set || text == "" {
		return -1
	}
	return int(max(-1, min(Number(text), 1<<16)))
}

// UCXNames are the names in UCX_NET_DEVICES, without ^ and ports.
func UCXNames(text string) (names []string) {
	for name := range strings.SplitSeq(strings.TrimPrefix(text, "^"), ",") {
		name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
		names = append(names, name)
	}
	return names
}
