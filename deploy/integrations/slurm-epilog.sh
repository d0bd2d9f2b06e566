#!/bin/sh
# Epilog of slurmd: probes a peer while the node is idle, and drains the node if its rails have a critical finding. Slurm
# drains a node whose Epilog fails (slurm.conf(5), Epilog). It calls no Slurm command, and ends within 22 s.
#
# slurm.conf: Epilog=/etc/slurm/railscope-epilog.sh
# /etc/default/railscope-epilog: RAILSCOPE_PEER=spark-02 RAILSCOPE_TOKEN_FILE=/etc/railscope/token
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmd sets none
# Findings about the settings of jobs must not drain a node.
export RAILSCOPE_CHECK_IGNORE="${RAILSCOPE_CHECK_IGNORE-nccl_fallback,nccl_ib_disable,nccl_net,ucx_net_devices,ucx_tls}"
if [ -r "${RAILSCOPE_EPILOG:=/etc/default/railscope-epilog}" ]; then
	# shellcheck source=/dev/null
	. "$RAILSCOPE_EPILOG"
fi
line=$(timeout -k 1 20 railscope check ${RAILSCOPE_PEER:+--peer="$RAILSCOPE_PEER"} \
	${RAILSCOPE_TOKEN_FILE:+--token-file="$RAILSCOPE_TOKEN_FILE"} 2>/dev/null)
if [ $? -eq 1 ]; then # 2: the round was skipped, or the state is unknown
	timeout -s KILL 1 logger -t railscope-epilog "after job $SLURM_JOB_ID: $line"
	exit 1
fi
exit 0
