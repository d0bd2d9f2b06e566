// Package arch tests which packages may import which. Each violation is reported with the reason of the rule.
package arch
