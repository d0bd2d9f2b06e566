#!/bin/sh
# PrologSlurmctld of slurm.conf: tries the rails of a job's nodes against each other before it starts. Nodes that should be
# left out are drained, and the job is requeued (slurm.conf(5), PrologSlurmctld). Whatever is unknown lets the job start.
# It runs on the controller as SlurmUser, who must be able to read the token.
#
# slurm.conf: PrologSlurmctld=/etc/slurm/railscope-gate.sh
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmctld sets none
token=${RAILSCOPE_TOKEN_FILE:-/etc/railscope/token}
names=$(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null) || exit 0
[ "$(printf '%s\n' "$names" | wc -l)" -gt 1 ] || exit 0 # there is nothing to try
out=$(printf '%s\n' "$names" |
	timeout -k 5 300 railscope fleet gate --nodes=- --token-file="$token" --format=drain 2>/dev/null)
[ $? -eq 1 ] || exit 0
printf '%s\n' "$out" | while read -r name; do
	case $name in
	'#'*) why=${name#\# } ;;
	?*)
		scontrol update NodeName="$name" State=DRAIN Reason="$why (railscope gate)"
		timeout -s KILL 1 logger -t railscope-gate "job $SLURM_JOB_ID: $name drained: $why"
		;;
	esac
done
exit 1
