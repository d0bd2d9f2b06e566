// Package slurm runs the recipes of deploy/integrations under Slurm itself: munged, slurmctld and slurmd of Debian,
// one node, in separate namespaces, which end with the test. `make slurm` runs it, as root.
package slurm
