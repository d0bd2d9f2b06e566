#!/bin/sh
# HealthCheckProgram of slurmd. Slurm ignores its exit code, so it drains the node itself (slurm.conf(5),
# HealthCheckProgram). The reason starts with the finding, because sinfo -R shows only 20 characters. A drained or down
# node keeps its reason, unless the reason is a failed Prolog or Epilog, which the finding explains.
#
# slurm.conf: HealthCheckProgram=/etc/slurm/railscope-health.sh HealthCheckInterval=60 HealthCheckNodeState=ANY
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmd sets none; it must include scontrol
if [ -x "${0%/*}/railscope-maintenance.sh" ]; then
	"${0%/*}/railscope-maintenance.sh"
fi
# Findings about the settings of jobs must not drain a node.
export RAILSCOPE_CHECK_IGNORE="${RAILSCOPE_CHECK_IGNORE-nccl_fallback,nccl_ib_disable,nccl_net,ucx_net_devices,ucx_tls}"
line=$(timeout -k 1 5 railscope check 2>/dev/null)
[ $? -eq 1 ] || exit 0
node=${SLURMD_NODENAME:-$(hostname -s)}
shown=$(timeout -k 1 5 scontrol show node --oneliner "$node") || exit 0
from=railscope
state=${shown#* State=}
case ${state%% *} in
*DRAIN* | *DOWN*)
	case $shown in
	*" Reason=Prolog error ["*) from="railscope, Prolog error" ;;
	*" Reason=Epilog error ["*) from="railscope, Epilog error" ;;
	*) exit 0 ;;
	esac
	;;
esac
timeout -k 1 5 scontrol update NodeName="$node" State=DRAIN Reason="${line#railscope: critical: } ($from)"
