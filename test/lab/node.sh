#!/usr/bin/env bash
# node.sh NODE OUT MODE: become the QEMU of lab node 1 or 2. Rails, and behind them the control segment, are one Ethernet
# segment each between the nodes: a unix socket in OUT that node 1 opens, so start node 1 first.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=/dev/null
. "$here/lab.sh"
RAILS=${RAILS:-4} node=$1 out=$(realpath "$2") mode=$3
init=plain
[[ $node == 1 ]] && init=${INIT:-plain} # of the peer nothing is wanted but that it answers

nics=()
for ((i = 0; i <= RAILS; i++)); do
  nics+=(-netdev "stream,id=r$i,addr.type=unix,addr.path=$out/segment$i.sock,server=$([[ $node == 1 ]] && echo on || echo off)"
    # A speed, because 802.3ad does not aggregate links that have none.
    -device "virtio-net-pci,netdev=r$i,romfile=,mac=52:54:00:00:0$i:0$node,speed=10000,duplex=full")
done
if [[ $node == 2 ]]; then
  for _ in $(seq 100); do
    [[ -S $out/segment$RAILS.sock ]] && break
    sleep .1
  done
fi
serial=(-serial "file:$out/node$node.console" -monitor none)
[[ $node == 1 && $mode == shell ]] && serial=(-serial mon:stdio)

# The node reaches its own monitor through a virtio port: that is how a test pulls a cable.
exec qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max,-erms,-cx16 -m "${MEM:-1024}" -display none -no-reboot "${serial[@]}" \
  -kernel "$LAB/root/boot/vmlinuz-$(cat "$LAB/kernel.version")" -initrd "$LAB/initrd.gz" \
  -append "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable mitigations=off no5lvl clearcpuid=rep_good lab=$LAB boot=$here/boot.sh node=$node rails=$RAILS mode=$mode init=$init" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$out,mount_tag=out,security_model=none,multidevs=remap" \
  -chardev "socket,id=monitor,path=$out/monitor$node.sock,server=on,wait=off" -mon chardev=monitor,mode=control \
  -chardev "socket,id=port,path=$out/monitor$node.sock" -device virtio-serial -device virtserialport,chardev=port \
  "${nics[@]}"
