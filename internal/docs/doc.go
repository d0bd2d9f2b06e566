// Package docs tests the documentation: links, spelling, make targets, and that every page can be reached from the first.
package docs
