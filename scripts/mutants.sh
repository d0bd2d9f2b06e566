#!/bin/sh
# mutants.sh [-seed N] [-count N] [-only DIR] changes what judges, one comparison, constant or result at a time, and
# prints the changes that no test notices. 400 of them take hours; a package by itself takes minutes, and a fraction of
# that with TMPDIR and GOTMPDIR in memory: the tests write many files.
set -eu
cd "$(dirname "$0")/.."
exec go run ./test/mutants "$@"
