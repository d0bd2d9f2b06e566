// Package integrations has files that ask railscope check on behalf of schedulers and monitoring, and their tests:
// docs/integrations.md.
package integrations
