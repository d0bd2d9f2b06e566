#!/bin/bash
# systemd.sh BOOT: what init.sh runs before systemd becomes process 1 of a node. The units of the host are left out, but for the
# journal's and what targets order: they are not the subject, and udev would rename what the tests know by name. BOOT becomes a
# service; when it ends, so does the node.
set -eu
rm -rf /etc/systemd/system/*.wants /usr/sbin/policy-rc.d
for wants in sysinit basic local-fs multi-user timers; do
  rm -rf "/usr/lib/systemd/system/$wants.target.wants"
done
find /usr/lib/systemd/system/sockets.target.wants -not -name '*journald*' -not -type d -delete

mkdir -p /run/systemd/system
cat >/run/systemd/system/lab.target <<end
[Unit]
Requires=basic.target
Wants=systemd-journald.service lab.service
end
cat >/run/systemd/system/lab.service <<end
[Unit]
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
ExecStart=/bin/bash $1
Environment=HOME=/root TERM=linux LAB=$LAB NODE=$NODE RAILS=$RAILS MODE=$MODE
LimitMEMLOCK=infinity
TasksMax=infinity
StandardOutput=file:/dev/console
end
