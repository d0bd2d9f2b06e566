// Package compose tests the compose file: every program takes its configuration, and every file that is mounted exists.
package compose
