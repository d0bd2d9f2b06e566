// Package text makes text from outside fit for machines: label values and words of a shell. Package terminal does the
// same for people.
package text

// MaxLabel is the length of the longest label, in bytes.
const MaxLabel = 128

// Label returns s as the value of a label: every character outside of [A-Za-z0-9._:\[\]-] becomes one _, and the
// result has at most [MaxLabel] bytes. It is for names that others choose (peers, devices, interfaces, processes,
// jobs, pods) and that end up in queries, alerts and terminals. Only the empty text stays empty.
func Label(s string) string {
	if clean(s) {
		return s
	}
	b := make([]byte, 0, min(len(s), MaxLabel))
	for _, c := range s { // an invalid byte is one character
		if len(b) == MaxLabel {
			break
		}
		if c >= 0x80 || !inLabel(byte(c)) {
			c = '_'
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func clean(s string) bool {
	if len(s) > MaxLabel {
		return false
	}
	for i := range len(s) {
		if !inLabel(s[i]) {
			return false
		}
	}
	return true
}

func inLabel(c byte) bool {
	switch c {
	case '.', '_', ':', '[', ']', '-':
		return true
	}
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}
