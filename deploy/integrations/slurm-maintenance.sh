#!/bin/sh
# Keeps railscope's maintenance file while Slurm has this node drained or down with a reason that begins with maintenance,
# or in a reservation for maintenance. It removes only its own file. A node that slurm-health.sh drained has another
# reason, and keeps its alerts. slurm-health.sh runs this script if it is in the same directory as
# railscope-maintenance.sh.
#
# scontrol update NodeName=n1 State=DRAIN Reason="maintenance: new cable"
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin" # slurmd sets none; it must include scontrol
file=${RAILSCOPE_MAINTENANCE:-/run/railscope/maintenance}
node=${SLURMD_NODENAME:-$(hostname -s)}
shown=$(timeout -k 1 5 scontrol show node --oneliner "$node") || exit 0 # unknown state: no change
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
