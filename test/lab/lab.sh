# lab.sh: where the lab lies, for the scripts that source it. Each series of kernels has a folder of its own.
# shellcheck shell=bash
export KERNEL=${KERNEL:-6.12}
export LAB=${LAB:-/var/tmp/roce-lab-$KERNEL}
