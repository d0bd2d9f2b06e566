#!/bin/sh
# need.sh NEED... installs what a build or a test needs:
#   COMMAND=PACKAGE   a command, and its Debian package
#   HEADER.h=PACKAGE  a C header, and its Debian package
#   /FILE=PACKAGE     a file, and its Debian package
#   go                a Go version that supports go.mod
# It installs missing packages with apt-get, with sudo unless run as root, and prints nothing if none is missing.
set -eu

packages=
for need in "$@"; do
	thing=${need%%=*} package=${need#*=}
	case $thing in
	go)
		if ! command -v go >/dev/null; then
			echo "Go is missing. Install $(sed -n 's/^go //p' go.mod) or newer: https://go.dev/dl" >&2
			exit 1
		fi
		if ! said=$(go list -m 2>&1); then
			echo "$(go version) will not do: $said" >&2
			echo "Install Go $(sed -n 's/^go //p' go.mod) or newer: https://go.dev/dl" >&2
			exit 1
		fi
		continue
		;;
	/*) [ -e "$thing" ] && continue ;;
	*.h) printf '#include <%s>\n' "$thing" | cc -E - >/dev/null 2>&1 && continue ;;
	*) command -v "$thing" >/dev/null && continue ;;
	esac
	echo "Missing: $thing (Debian package $package)"
	packages="$packages $package"
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "This machine has no apt-get. Install by hand what Debian calls:$packages" >&2
	exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "Run this as root: apt-get install$packages" >&2
		exit 1
	fi
	sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
echo "Installing:$packages (${sudo:+$sudo }apt-get install)"
exec 8</var/lib/dpkg # lock, because CI runs several of these at once
flock 8
$sudo apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$sudo apt-get install -y -qq --no-install-recommends $packages
