#!/bin/bash
# boot.sh: what a node runs as root once the host's root is its own. Rails are eth0…, the last NIC is the control segment
# ctl0. MODE says what then: test (node 1 runs the tests, node 2 obeys) or shell (node 1 gives one).
set -u
modprobe -a virtio_console crc32_generic rdma_rxe rdma_ucm sch_tbf sch_netem sch_ingress cls_u32 act_gact fuse
modprobe bonding max_bonds=0
hostname "node$NODE"
ulimit -l unlimited
ip link set lo up
for ((i = 0; i < RAILS; i++)); do
  # A second name that stays when a test renames the netdev.
  ip link property add dev "eth$i" altname "rail$i"
done
ip link set "eth$RAILS" name ctl0
ip addr add "192.168.200.$NODE/24" dev ctl0
ip link set ctl0 up

cd /tmp || exit
if ((NODE == 2)); then
  exec "$LAB/lab.test" >/out/agent.log 2>&1
elif [[ $MODE == shell ]]; then
  stty -F /dev/ttyS0 sane
  echo "node 1: LAB=$LAB; '$LAB/lab.test -test.run NAME -test.v' runs a test; exit powers off"
  setsid -c bash </dev/ttyS0 >/dev/ttyS0 2>&1
else
  mapfile -t args </out/args
  "$LAB/lab.test" -test.v "${args[@]}" >/out/test.log 2>&1
  echo $? >/out/rc
fi
