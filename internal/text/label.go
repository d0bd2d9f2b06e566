// Package text cleans text from outside for machines: label values and words of a shell. Package terminal does the same
// for people.
package text

import "strings"

// MaxLabel is the maximum length of a label in bytes.
const MaxLabel = 128

// inLabel are the characters that labels keep.
const inLabel = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:[]-"

// Label returns s as a label value: every character outside of [A-Za-z0-9._:\[\]-], and invalid byte, becomes _, at
// most [MaxLabel] bytes in all. It is for names that others choose and that end up in queries and terminals.
func Label(s string) string {
	s = strings.Map(func(c rune) rune {
		if strings.ContainsRune(inLabel, c) {
			return c
		}
		return '_'
	}, s)
	return s[:min(len(s), MaxLabel)]
}
