#!/bin/sh
# arm64.sh builds railscope for arm64, C included, into .bin/arm64/, and runs
# the probe's tests with it: packages whole under qemu, and rounds between nodes
# of this architecture whose workers, with all of the C, are arm64 under qemu.
# Left out is what has to do with time, which is another there, and with TCP, for
# qemu-user has no TCP_INFO. LDFLAGS is what the build stamps.
set -eu

root=/usr/aarch64-linux-gnu
scripts/need.sh go aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu $root/include/stdio.h=libc6-dev-arm64-cross \
	qemu-aarch64=qemu-user taskset=util-linux infiniband/verbs.h=libibverbs-dev

# The headers of libibverbs are the same for all architectures; the compiler finds
# them in /usr/include, after its own of everything else.
cross() { GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc "$@"; }

# Under qemu-user on two processors what one thread stored may not be there yet
# when another looks, where arm64 says it is: Go programs hang now and then while
# the runtime stops their threads. On one processor it is there. And what has
# threads and forks becomes a copy that hangs: so whoever starts workers is a
# program of this machine's.
emulator="taskset -c $(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/') qemu-aarch64 -L $root"

mkdir -p .bin/arm64
cross go build -trimpath -buildvcs=false -ldflags "${LDFLAGS:-}" -o .bin/arm64/railscope ./cmd/railscope
$emulator .bin/arm64/railscope --version

# These go first because they compile the fake libibverbs, with CC.
cross go test -c -o .bin/arm64/probe.test ./probe
export RAILSCOPE_TEST_WORKER_COMMAND="$emulator $PWD/.bin/arm64/probe.test"
go test -count=1 -timeout 120s -exec "env CC=aarch64-linux-gnu-gcc" -run 'TestRoundBy|TestRoundFallsBack|TestRoundOfOneRail|TestTournament' ./probe
cross go test -timeout 120s -exec "$emulator" ./probe/report ./probe/internal/failure ./probe/internal/pattern ./probe/internal/verbs
cross go test -timeout 120s -exec "$emulator" -run 'TestNextRound|TestPairRails|TestEqualParts|TestMismatches|Fuzz' ./probe
cross go test -timeout 120s -exec "$emulator" -run 'Frame|Fuzz' ./probe/internal/worker
