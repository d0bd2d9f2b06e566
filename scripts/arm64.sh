#!/bin/sh
# arm64.sh builds railscope for arm64, C included, into
# .bin/arm64/, and runs the probe's tests under qemu, worker processes and
# all: whole rounds, and whatever has to do with neither time, which is another
# there, nor tcp, for qemu-user has no TCP_INFO. LDFLAGS is what the build stamps.
set -eu

root=/usr/aarch64-linux-gnu
scripts/need.sh go aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu $root/include/stdio.h=libc6-dev-arm64-cross \
	qemu-aarch64=qemu-user infiniband/verbs.h=libibverbs-dev

# The headers of libibverbs are the same for all architectures; the compiler finds
# them in /usr/include, after its own of everything else.
export GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc
go build -trimpath -buildvcs=false -ldflags "${LDFLAGS:-}" -o .bin/arm64/railscope ./cmd/railscope
qemu-aarch64 -L $root .bin/arm64/railscope --version
# Worker processes are arm64 programs, too.
export RAILSCOPE_TEST_EMULATOR="qemu-aarch64 -L $root"
go test -exec "$RAILSCOPE_TEST_EMULATOR" ./probe/report ./probe/internal/failure ./probe/internal/pattern ./probe/internal/verbs
go test -exec "$RAILSCOPE_TEST_EMULATOR" -run 'TestRoundBy|TestRoundFallsBack|TestRoundOfOneRail|TestTournament|TestNextRound|TestPairRails|TestEqualParts|TestMismatches|Fuzz' ./probe
go test -exec "$RAILSCOPE_TEST_EMULATOR" -run 'Frame|Fuzz' ./probe/internal/worker
