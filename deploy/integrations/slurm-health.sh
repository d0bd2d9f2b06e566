#!/bin/sh
# HealthCheckProgram of slurmd. Slurm ignores its exit code and leaves it to drain the node (slurm.conf(5),
# HealthCheckProgram). A node that is drained already keeps its reason.
#
# slurm.conf: HealthCheckProgram=/etc/slurm/railscope-health.sh HealthCheckInterval=60 HealthCheckNodeState=ANY
line=$(timeout 5 railscope check 2>/dev/null)
[ $? -eq 1 ] || exit 0
node=${SLURMD_NODENAME:-$(hostname -s)}
case $(timeout 5 scontrol show node --oneliner "$node") in
*State=*DRAIN*) exit 0 ;;
esac
timeout 5 scontrol update NodeName="$node" State=DRAIN Reason="$line"
