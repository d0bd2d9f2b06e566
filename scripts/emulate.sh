#!/bin/sh
# emulate.sh PROGRAM ARG... runs a program for arm64 under qemu-user, on one
# processor: on two, what one thread stored may not be there yet when another
# looks, where arm64 says that it is, and Go programs hang now and then while the
# runtime stops their threads. A program that forks must not be run so: where it
# has threads its copy may hang before it becomes another.
set -eu

processor=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/') # the first that this process may use
exec taskset -c "$processor" qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"
