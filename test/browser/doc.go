// Package browser opens the live page in a real Chromium.
//
// It is a separate module, so that no binary depends on the browser driver. The tests build railscope, serve a
// simulated machine whose counters they change, and check the page as a person sees it. `make page` runs them.
package browser
