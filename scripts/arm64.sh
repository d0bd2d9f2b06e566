#!/bin/sh
# arm64.sh builds railscope with C for arm64 into .bin/arm64/, and runs the probe's tests with it: whole packages under
# qemu, and rounds between native nodes whose workers, with all of the C, are arm64 under qemu. The nodes are native
# because they fork, which qemu handles badly. It skips tests that depend on time, which differs under qemu, and on TCP,
# because qemu-user has no TCP_INFO. LDFLAGS sets the version stamp of the build.
set -eu

root=/usr/aarch64-linux-gnu
scripts/need.sh go aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu $root/include/stdio.h=libc6-dev-arm64-cross \
	qemu-aarch64=qemu-user taskset=util-linux infiniband/verbs.h=libibverbs-dev

# The headers of libibverbs do not depend on the architecture. The compiler searches /usr/include for them after its own
# directories.
cross() { GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc "$@"; }

emulate=$PWD/scripts/emulate.sh
mkdir -p .bin/arm64
cross go build -trimpath -buildvcs=false -ldflags "${LDFLAGS:-}" -o .bin/arm64/railscope ./cmd/railscope
$emulate .bin/arm64/railscope --version

# The first of these tests compile the fake libibverbs with CC, and check that it works under qemu.
FAKEVERBS_RUN=$emulate go test -count=1 -timeout 120s -exec "env CC=aarch64-linux-gnu-gcc" ./probe/internal/fakeverbs
cross go test -c -o .bin/arm64/probe.test ./probe
export RAILSCOPE_TEST_WORKER_COMMAND="$emulate $PWD/.bin/arm64/probe.test"
go test -count=1 -timeout 120s -exec "env CC=aarch64-linux-gnu-gcc" -run 'TestRoundByRDMA|TestRoundFallsBack' ./probe
cross go test -timeout 120s -exec "$emulate" ./bench ./probe/internal/failure ./probe/internal/pattern ./probe/internal/verbs/...
cross go test -timeout 120s -exec "$emulate" -run 'TestNextRound|TestPairRails|TestEqualParts|TestMismatches|Fuzz' ./probe
cross go test -timeout 120s -exec "$emulate" -run 'Frame|Fuzz' ./probe/internal/worker
