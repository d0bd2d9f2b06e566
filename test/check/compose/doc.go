// Package compose tests the compose file: every program accepts its configuration, and every mounted file exists.
package compose
