#!/bin/sh
# Plugin for Nagios, Icinga and NRPE: OK 0, WARNING 1, CRITICAL 2, UNKNOWN 3. It takes the flags of railscope check.
#
#    command[check_railscope]=/usr/lib/nagios/plugins/check_railscope
line=$(timeout -k 1 10 railscope check --min-severity=warning "$@" 2>&1)
code=$?
line=${line##*"
"} # log messages precede the line
printf '%s\n' "${line:-railscope: unknown: no output}"
case $code:$line in
0:*) exit 0 ;;
1:"railscope: critical: "*) exit 2 ;;
1:*) exit 1 ;;
esac
exit 3
