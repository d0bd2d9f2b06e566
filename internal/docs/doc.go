// Package docs tests the documentation: links, spelling, make targets, and that the first page leads to every page.
package docs
