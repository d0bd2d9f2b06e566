#!/bin/sh
# promtool.sh FILE installs promtool, or prometheus, as FILE: the lab's, this machine's, or Debian's.
# It only unpacks Debian's package, because installing it would start a Prometheus.
set -eu

name=$(basename "$1")
lab=${LAB:-/var/tmp/roce-lab-6.12}/prometheus/usr/bin/$name
mkdir -p "$(dirname "$1")"
if [ -x "$lab" ]; then
	cp "$lab" "$1"
elif command -v "$name" >/dev/null; then
	cp "$(command -v "$name")" "$1"
elif command -v apt-get >/dev/null; then
	echo "Missing: $name (from the Debian package prometheus, which is not installed)"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work" # apt drops root for downloads, and needs a directory that its own user can write
	if [ "$(id -u)" = 0 ]; then
		chown _apt "$work"
		apt-get update -qq
	fi
	(cd "$work" && apt-get download -qq prometheus >/dev/null)
	dpkg -x "$work"/*.deb "$work/root"
	cp "$work/root/usr/bin/$name" "$1"
else
	echo "Put $name 2.42 or newer into the PATH: https://prometheus.io/download" >&2
	exit 1
fi
