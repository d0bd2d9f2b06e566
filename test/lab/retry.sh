#!/usr/bin/env bash
# retry.sh REGEXP FLAG...: every test of the lab that REGEXP matches, in nodes that are booted anew after each failure,
# eight times at most, and go on with what has not passed. FLAGs are run.sh's.
# The nodes' processors are emulated by two that others use, too, and where Linux 6.1's Soft-RoCE hangs nothing goes over
# that rail until the next boot. What is wrong fails in each of them. Exits 0 only if each test passed, or skipped, in one.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=/dev/null
. "$here/lab.sh"
out=$LAB/out
tests=$1
shift

# From the source, because the tests' binary runs in a node alone.
mapfile -t left < <(grep -l '^//go:build lab' "$here"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t \*testing\.T).*/\1/p' | grep -E -- "$tests")
((${#left[@]})) || { echo "retry.sh: no test of the lab matches $tests" >&2; exit 2; }

for boot in {1..8}; do
  echo "== boot $boot: ${#left[@]} tests"
  rc=0
  "$here/run.sh" "$@" -failfast -run "^($(IFS='|'; echo "${left[*]}"))\$" || rc=$?
  case $rc in 0 | 130) exit "$rc" ;; esac # 130: somebody has had enough
  ended=$(sed -n 's/^--- \(PASS\|SKIP\): \([A-Za-z0-9_]*\) .*/\2/p' "$out/test.log" || true)
  mapfile -t left < <(printf '%s\n' "${left[@]}" | grep -vxF -- "$ended")
  ((${#left[@]})) || break # each passed, and the run did not: there is something else
done
echo "retry.sh: failed, ${#left[@]} tests passed in no boot: ${left[*]}" >&2
exit 1
