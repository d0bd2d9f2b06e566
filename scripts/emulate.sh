#!/bin/sh
# emulate.sh PROGRAM ARG... runs a program for arm64 under qemu-user, on one processor. On two processors qemu does not
# keep arm64's memory order between threads, and Go programs sometimes hang while the runtime stops their threads. Do not
# use it for programs that fork: with threads, the copy may hang before it calls exec.
set -eu

processor=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/') # first processor that this process may use
exec taskset -c "$processor" qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"
