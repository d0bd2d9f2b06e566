#!/bin/sh
# Keeps railscope's maintenance file while Slurm has this node drained or down for a reason that begins with maintenance,
# or in a reservation for maintenance. It removes only a file of its own. A node that slurm-health.sh has drained has
# another reason, and keeps its alerts. slurm-health.sh runs it, if it is beside it as railscope-maintenance.sh.
#
# scontrol update NodeName=n1 State=DRAIN Reason="maintenance: new cable"
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmd sets none; scontrol must be in it
file=${RAILSCOPE_MAINTENANCE:-/run/railscope/maintenance}
node=${SLURMD_NODENAME:-$(hostname -s)}
shown=$(timeout -k 1 5 scontrol show node --oneliner "$node") || exit 0 # not known: nothing changes
state=${shown#* State=}
wanted=no
case ${state%% *} in
*MAINT*) wanted=yes ;;
*DRAIN* | *DOWN*)
	case $shown in
	*" Reason=maintenance"* | *" Reason=Maintenance"*) wanted=yes ;;
	esac
	;;
esac
if [ $wanted = yes ]; then
	[ -e "$file" ] || { mkdir -p "${file%/*}" && echo slurm >"$file"; }
elif [ "$(head -c 16 "$file" 2>/dev/null)" = slurm ]; then
	rm -f "$file"
fi
exit 0
