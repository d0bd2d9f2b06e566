#!/bin/sh
# image-test.sh runs the image from image.sh once as Kubernetes does: as its own user, without capabilities, on a
# read-only root file system. It checks the metrics over loopback, the commands, and that libibverbs and a provider load.
set -eu

if [ "$(id -u)" != 0 ]; then
	echo "image-test.sh: podman needs root here: sudo scripts/image-test.sh" >&2
	exit 1
fi
run=scripts/image.sh
work=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" || true; fi; rm -rf "$work"' EXIT
fail() {
	echo "image: $*" >&2
	cat "$work/log" >&2
	exit 1
}

setpriv --reuid=65534 --clear-groups sh -s railscope <$run >"$work/log" 2>&1 || true
grep -q "need root here: sudo scripts/image.sh railscope" "$work/log" || fail "no advice for users other than root"

echo "probe: {listen: '127.0.0.1:0', insecure: true}" >"$work/railscope.yml" # lets curl query it
: >"$work/log"
chmod 755 "$work"
chmod 644 "$work"/*
IMAGE_RUN="--volume $work:/etc/railscope:ro" $run run serve --config.file=/etc/railscope/railscope.yml --web.listen-address=127.0.0.1:0 >"$work/log" 2>&1 &
server=$!
said() { sed -n "s/.*$1.*/\1/p" "$work/log" | head -n 1; }
for _ in $(seq 100); do
	grep -q 'msg=Serving' "$work/log" && break
	kill -0 "$server" 2>/dev/null || break
	sleep 0.2
done
web=$(said 'msg="Listening on" address=\([0-9.:]*\)')
peers=$(said 'msg="Answering probes" listen=\([0-9.:]*\)')
if [ -z "$web" ] || [ -z "$peers" ]; then fail "it does not serve"; fi

curl -fsS "http://$web/-/ready" >/dev/null || fail "it is not ready"
curl -fsS "http://$web/metrics" >"$work/metrics" || fail "no metrics"
grep -q '^railscope_build_info' "$work/metrics" || fail "no build_info"
if grep '^railscope_source_success.* 0$' "$work/metrics"; then fail "a source fails"; fi

# The kernel reports the user of the process.
pid=$(pgrep -f "^/usr/bin/railscope serve --config.file=/etc/railscope/railscope.yml --web.listen-address=127.0.0.1:0" | head -n 1)
for is in 'Uid:	65532	65532	65532	65532' 'CapEff:	0000000000000000' 'CapBnd:	0000000000000000' 'NoNewPrivs:	1' 'Seccomp:	2'; do
	grep -q "^$is\$" "/proc/$pid/status" || fail "not so: $is, but $(grep "^${is%%:*}:" "/proc/$pid/status")"
done
grep -q ' / [^ ]* ro,' "/proc/$pid/mounts" || fail "its root file system can be written"

# The worker must have opened libibverbs and reported its version.
for _ in $(seq 50); do
	curl -fsSk "https://$peers/v2/node" >"$work/hello" || fail "it does not answer peers"
	grep -q '"rdma_core":"[0-9]' "$work/hello" && break
	sleep 0.2
done
core=$(sed -n 's/.*"rdma_core":"\([^"]*\)".*/\1/p' "$work/hello")
[ -n "$core" ] || fail "no libibverbs: $(cat "$work/hello")"

# libibverbs opens a provider only for an adapter, so here the linker loads it with its dependencies.
provider=$(find .bin/image/storage/vfs/dir -name 'libmlx5-rdmav*.so' | sed -n '1s/.*\(\/usr\/lib\/.*\)/\1/p')
[ -n "$provider" ] || fail "no provider for mlx5"
IMAGE_RUN="--entrypoint /bin/true --env LD_PRELOAD=$provider --env LD_BIND_NOW=1" $run run >"$work/log" 2>&1 || fail "$provider does not load"
if grep -q "cannot be preloaded" "$work/log"; then fail "$provider does not load"; fi

rails=0
$run run rails >"$work/log" 2>&1 || rails=$?
[ "$rails" -le 1 ] || fail "railscope rails fails" # 1: no rails
cat "$work/log"
echo "image: serves as 65532 without capabilities over a read-only root file system; rdma-core $core, $(basename "$provider") loads"
