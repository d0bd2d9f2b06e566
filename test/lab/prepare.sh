#!/usr/bin/env bash
# prepare.sh: put into $LAB what two lab nodes boot and run: Debian's kernel of the series $KERNEL with its modules
# (backports: the newest one that Debian has), an initial RAM disk, and a real Prometheus. Installs only what is missing. Needs root only where a package is missing.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=/dev/null
. "$here/lab.sh"
mkdir -p "$LAB"
cd "$LAB"
exec 8</var/lib/dpkg # one apt-get at a time: labs on two kernels, and scripts/need.sh
flock 8

# Tools of the host are tools of the nodes: the host's root is theirs.
need=()
for p in qemu-system-x86 busybox-static cpio kmod iproute2 iputils-ping procps rdma-core ibverbs-providers ibverbs-utils ethtool perftest iperf3 fuse3 systemd rpm xz-utils; do
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || need+=("$p")
done
if ((${#need[@]})); then
  if ((EUID)); then
    echo "prepare.sh: not root, and these packages are missing: ${need[*]}" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

# unpack PACKAGE DIR: the package's files under DIR. It is never installed, so its scripts do not run: a kernel must not
# become the host's, nor a Prometheus one of its services.
unpack() {
  local work
  work=$(mktemp -d "$LAB/unpack.XXXXXX")
  # apt drops root for downloads and then wants a folder that its own user may write.
  chmod 755 "$work"
  ((EUID)) || chown _apt "$work"
  (cd "$work" && apt-get download -qq "$1" >/dev/null)
  rm -rf "$2"
  dpkg -x "$work"/*.deb "$2"
  rm -rf "$work"
}
updated=0
update() {
  ((updated)) || apt-get update -qq
  updated=1
}

# backports unpacks the newest kernel of the next release's backports into root, from the mirror that apt has, with lists
# of its own.
backports() {
  local uri kv deb
  uri=$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1 || true)
  mkdir -p apt/lists/partial apt/archives/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri ${SUITE:-trixie}-backports main" >apt/list
  local apt=(-o "Dir::State::Lists=$LAB/apt/lists" -o "Dir::Etc::sourcelist=$LAB/apt/list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::Cache=$LAB/apt" -o APT::Sandbox::User=root)
  apt-get "${apt[@]}" update -qq
  kv=$(apt-cache "${apt[@]}" depends linux-image-amd64 | sed -n 's/.*Depends: linux-image-\([0-9].*\)/\1/p' | head -1)
  (cd apt && apt-get "${apt[@]}" download -qq "linux-base-$kv" "linux-modules-$kv" "linux-binary-$kv")
  rm -rf root
  mkdir -p root/lib root/boot
  for deb in apt/*.deb; do dpkg -x "$deb" root; done
  rm -rf apt
  mv root/usr/lib/modules root/lib/
  cp "root/lib/modules/$kv/vmlinuz" "root/boot/vmlinuz-$kv"
  depmod -b root "$kv"
  echo "$kv" >kernel.version
}

if [[ ! -e kernel.version && $KERNEL == backports ]]; then
  backports
elif [[ ! -e kernel.version ]]; then
  update
  package=linux-image-$KERNEL-amd64
  [[ $KERNEL != 6.1 ]] || package=linux-image-amd64 # Debian 12's own series
  deb=$(apt-cache depends "$package" | awk '/Depends:/ {print $2; exit}')
  unpack "$deb" root
  depmod -b root "${deb#linux-image-}"
  echo "${deb#linux-image-}" >kernel.version
fi
if [[ ! -x prometheus/usr/bin/promtool ]]; then
  update
  unpack prometheus prometheus
fi

# The initial RAM disk: busybox, init.sh, and the few modules that the host's root needs to be mounted.
kv=$(cat kernel.version)
rm -rf initrd
mkdir -p initrd/{bin,proc,sys,dev,lower,rw,new,m}
cp "$(command -v busybox)" initrd/bin/busybox
i=100
for m in virtio_pci 9p 9pnet_virtio overlay virtio_net; do
  modprobe -d root -S "$kv" --show-depends "$m"
done | awk '/^insmod/ && !seen[$2]++ {print $2}' | while read -r f; do
  to=initrd/m/$i-$(basename "$f" .xz)
  case $f in
  *.xz) xz -dc "$f" >"$to" ;; # 6.12 compresses modules; busybox loads plain ones only
  *) cp "$f" "$to" ;;
  esac
  i=$((i + 1))
done
cp "$here/init.sh" initrd/init
chmod +x initrd/init
(cd initrd && find . | cpio -o -H newc 2>/dev/null | gzip -1) >initrd.gz
echo "lab ready in $LAB: kernel $kv"
