// Package docs holds no code: its tests hold that links in the documentation
// lead somewhere, that every page can be found from the first one, and that
// words and make targets are what they are called.
package docs
