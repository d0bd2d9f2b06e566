// Package arch holds the house's arrows: tests that read the source of all
// other packages and say which import breaks which rule, and why there is one.
package arch
