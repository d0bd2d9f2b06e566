// Package arch tests which packages may import which, and prints the reason with each violation.
package arch
