// Package slurm runs the recipes of deploy/integrations under Slurm itself: munged, slurmctld and slurmd of Debian, one
// node, in namespaces of its own, which end with the test. `make slurm` runs it, as root.
package slurm
