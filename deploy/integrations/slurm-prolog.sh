#!/bin/sh
# Prolog of slurmd: keeps jobs off a node whose rails have a critical finding. Slurm drains a node whose Prolog fails,
# and requeues and holds a batch job (slurm.conf(5), Prolog). It calls no Slurm command, and ends within 7 s.
#
# slurm.conf: Prolog=/etc/slurm/railscope-prolog.sh
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmd sets none
# Findings about the settings of jobs must not drain a node.
export RAILSCOPE_CHECK_IGNORE="${RAILSCOPE_CHECK_IGNORE-nccl_fallback,nccl_ib_disable,nccl_net,ucx_net_devices,ucx_tls}"
line=$(timeout -k 1 5 railscope check 2>/dev/null)
if [ $? -eq 1 ]; then # 2: unknown state, which must not drain a node
	timeout -s KILL 1 logger -t railscope-prolog "job $SLURM_JOB_ID refused: $line"
	exit 1
fi
exit 0
