#!/usr/bin/env bash
# run.sh [-run REGEXP] [FLAG...]: boot both lab nodes, run the end-to-end tests in node 1 with node 2 as its peer, power off.
# FLAGs are those of go test (-run, -count, -failfast, -skip, ...). run.sh -shell gives a shell in node 1 instead.
# run.sh -systemd [...] has systemd run node 1, and runs the tests of the package of dist/ unless others are named.
# Exits 0 only if every test passed. What the nodes wrote stays in $LAB/out until the next run.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=/dev/null
. "$here/lab.sh"
out=$LAB/out limit=${LIMIT:-1800} mode=test
if [[ ${1:-} == -systemd ]]; then
  export INIT=systemd
  shift
  [[ " $* " == *" -run"* ]] || set -- -run '^TestPackage' "$@"
fi
[[ " $* " == *" -shell "* ]] && mode=shell limit=0 # 0: as long as one likes

mkdir -p "$LAB"
# The nodes inherit the lock, so that it is held until the last one is gone, however this script ends.
exec 9>"$LAB/lock"
flock -n 9 || { echo "run.sh: another lab is running in $LAB" >&2; exit 1; }
"$here/prepare.sh"
rm -rf "$out"
mkdir -p "$out/rules"
cp "$here"/../../deploy/rules/*.yml "$out/rules"
echo "building"
go -C "$here/../.." build -o "$LAB/railscope" ./cmd/railscope
[[ ${INIT:-} != systemd ]] || "$here/packages.sh" "$LAB/packages"
go -C "$here/../.." test -c -tags lab -o "$LAB/lab.test" ./test/lab

pids=()
power_off() {
  ((${#pids[@]})) || return 0
  kill "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
}
trap power_off EXIT
trap 'exit 130' INT TERM

# boot NODE: in the background, never longer than the limit, and gone when this script is, even if killed.
boot() {
  setpriv --pdeathsig TERM timeout -k 5 "$limit" bash "$here/node.sh" "$1" "$out" "$mode" </dev/null >"$out/node$1.qemu" 2>&1 &
  pids+=($!)
}

if [[ $mode == shell ]]; then
  boot 2 # it waits for the segments that node 1 opens
  bash "$here/node.sh" 1 "$out" shell
  exit
fi

# lab.test stops itself, and says where it hung, before the limit cuts the power.
printf '%s\n' "-test.timeout=$((limit - 30))s" "${@/#-/-test.}" >"$out/args"
: >"$out/test.log"
boot 1
boot 2
# In the background, because a shell that waits takes signals and one that runs a program does not.
tail -n +1 -s .2 -f "$out/test.log" --pid="${pids[0]}" 9>&- &
wait "$!" "${pids[0]}" || true

rc=$(cat "$out/rc" 2>/dev/null || echo none)
count() { grep -c -- "^--- $1:" "$out/test.log" || true; }
passed=$(count PASS)
echo "== lab: $passed passed, $(count FAIL) failed, $(count SKIP) skipped in ${SECONDS} s; exit code ${rc}"
# A run without a test proves nothing: a misspelt -run must not pass for one.
if [[ $rc != 0 || $passed == 0 ]]; then
  grep -- '^ *--- FAIL:' "$out/test.log" || tail -n 20 "$out/node1.qemu" "$out/node1.console" "$out/node2.qemu" "$out/node2.console"
  echo "== what the nodes wrote is in $out"
  exit 1
fi
