// Package integrations contains the files with which schedulers and monitoring run railscope check, and their tests.
// See docs/integrations.md.
package integrations
