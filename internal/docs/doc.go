// Package docs tests the documentation: links, spelling, make targets, and that every page is linked from the first.
package docs
