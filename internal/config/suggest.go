package config

import (
	"fmt"
	"strings"
)

// Suggest returns the end of a message about an unknown word: the nearest known word, or all of them.
func Suggest(word string, known []string) string {
	if best := Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; known keys: " + strings.Join(known, ", ")
}

// Nearest returns the known word that was probably meant, in which at most 1/3 of the letters differ; empty: none.
func Nearest(word string, known []string) string {
	best, least := "", (len(word)+1)/3+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
