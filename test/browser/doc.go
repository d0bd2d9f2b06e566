// Package browser opens the live page in a real Chromium.
//
// It is a module of its own, so that what drives a browser is in nobody's binary.
// The tests build railscope, serve a made-up machine whose counters they move,
// and look at the page as a person would. `make page` runs them.
package browser
