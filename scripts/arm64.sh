#!/bin/sh
# arm64.sh builds railscope for arm64, C included, into .bin/arm64/, and runs
# the probe's tests with it: packages whole under qemu, and rounds between nodes
# of this architecture whose workers, with all of the C, are arm64 under qemu.
# The nodes are not: they fork, which qemu does not do well. Left out is what has
# to do with time, which is another there, and with TCP, for qemu-user has no
# TCP_INFO. LDFLAGS is what the build stamps.
set -eu

root=/usr/aarch64-linux-gnu
scripts/need.sh go aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu $root/include/stdio.h=libc6-dev-arm64-cross \
	qemu-aarch64=qemu-user taskset=util-linux infiniband/verbs.h=libibverbs-dev

# The headers of libibverbs are the same for all architectures; the compiler finds
# them in /usr/include, after its own of everything else.
cross() { GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc "$@"; }

emulate=$PWD/scripts/emulate.sh
mkdir -p .bin/arm64
cross go build -trimpath -buildvcs=false -ldflags "${LDFLAGS:-}" -o .bin/arm64/railscope ./cmd/railscope
$emulate .bin/arm64/railscope --version

# The first of these compile the fake libibverbs, with CC, and hold that it works there.
FAKEVERBS_RUN=$emulate go test -count=1 -timeout 120s -exec "env CC=aarch64-linux-gnu-gcc" ./probe/internal/fakeverbs
cross go test -c -o .bin/arm64/probe.test ./probe
export RAILSCOPE_TEST_WORKER_COMMAND="$emulate $PWD/.bin/arm64/probe.test"
go test -count=1 -timeout 120s -exec "env CC=aarch64-linux-gnu-gcc" -run 'TestRoundByRDMA|TestRoundFallsBack' ./probe
cross go test -timeout 120s -exec "$emulate" ./bench ./probe/internal/failure ./probe/internal/pattern ./probe/internal/verbs/...
cross go test -timeout 120s -exec "$emulate" -run 'TestNextRound|TestPairRails|TestEqualParts|TestMismatches|Fuzz' ./probe
cross go test -timeout 120s -exec "$emulate" -run 'Frame|Fuzz' ./probe/internal/worker
