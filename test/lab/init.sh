#!/bin/busybox sh
# init.sh: the nodes' /init. Mounts the host's root read-only under a throw-away overlay, so that every tool and every build
# of the host is there at the same path, and hands over to boot.sh. Powers the node off when that returns.
# shellcheck shell=dash
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for f in /m/*.ko; do $b insmod "$f"; done
arg() { $b sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline; }

$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=524288,cache=loose host /lower
$b mount -t tmpfs tmpfs /rw
$b mkdir /rw/u /rw/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/rw/u,workdir=/rw/w overlay /new
for d in proc sys dev run out tmp; do $b mkdir -p /new/$d; done
$b mount -t proc proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t devtmpfs dev /new/dev
$b mkdir -p /new/dev/shm /new/dev/pts
$b mount -t devpts devpts /new/dev/pts
for d in dev/shm run; do $b mount -t tmpfs tmpfs /new/$d; done
# what comes out: both nodes and the host write here
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none out /new/out

lab=$(arg lab)
modules=/new/usr/lib/modules
$b mkdir -p $modules
$b mount --bind "/new$lab/root/lib/modules" $modules
set -- PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=linux LAB="$lab" NODE="$(arg node)" RAILS="$(arg rails)" MODE="$(arg mode)"
if [ "$(arg init)" = systemd ]; then
  boot=$(arg boot)
  $b chroot /new /usr/bin/env -i "$@" /bin/bash "${boot%/*}/systemd.sh" "$boot"
  exec $b switch_root /new /lib/systemd/systemd --unit=lab.target
fi
$b chroot /new /usr/bin/env -i "$@" /bin/bash "$(arg boot)"
$b sync
$b poweroff -f
