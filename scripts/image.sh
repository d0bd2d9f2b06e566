#!/bin/sh
# image.sh BINARY builds the container image of deploy/container/Dockerfile with BINARY and BINARY-bench for this machine,
# without Docker and without a registry: the base has the content of debian:13-slim, built from Debian's packages.
# image.sh run ARG... runs the image as Kubernetes does: read-only root file system, no capabilities, no new privileges,
# seccomp, host network. All its state is in .bin/image; the image is localhost/railscope.
set -eu

if [ "$(id -u)" != 0 ]; then
	echo "image.sh: podman and mmdebstrap need root here: sudo scripts/image.sh $*" >&2
	exit 1
fi
scripts/need.sh podman=podman runc=runc
keep=$PWD/.bin/image
# A separate store keeps the machine's own images out; vfs and runc also work inside a container.
podman() {
	${as:-command} podman --root "$keep/storage" --runroot "$keep/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime "$(command -v runc)" "$@"
}

if [ "$1" = run ]; then
	shift
	as="exec" # signals reach podman
	# shellcheck disable=SC2086 # a list of words
	podman run --rm --pull never --network host --read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges --memory 192m \
		--ulimit nofile=4096:4096 --ulimit nproc=4096:4096 ${IMAGE_RUN:-} localhost/railscope "$@"
fi

platform=linux/$(dpkg --print-architecture)
mkdir -p "$keep/context/$platform"
cp "$1" "$keep/context/$platform/railscope"
cp "$1-bench" "$keep/context/$platform/railscope-bench"
if ! podman image exists localhost/debian-slim; then
	scripts/need.sh mmdebstrap=mmdebstrap
	# The official slim image leaves these files out, and keeps apt's cache empty in this way.
	mmdebstrap --quiet --variant=apt \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
		--customize-hook="printf '%s\n' 'Dir::Cache::pkgcache \"\";' 'Dir::Cache::srcpkgcache \"\";' 'DPkg::Post-Invoke { \"rm -f /var/cache/apt/archives/*.deb\"; };' >\"\$1/etc/apt/apt.conf.d/docker-clean\"; rm -rf \"\$1\"/var/lib/apt/lists/* \"\$1\"/var/cache/apt/*" \
		trixie "$keep/base.tar"
	podman import --quiet --change CMD=/bin/bash "$keep/base.tar" localhost/debian-slim >/dev/null
	rm "$keep/base.tar"
fi
podman build --quiet --isolation chroot --platform "$platform" --build-arg BASE=localhost/debian-slim --tag localhost/railscope \
	--file deploy/container/Dockerfile "$keep/context"
podman image prune --force >/dev/null # the previous image
podman image ls --format '{{.Repository}} {{.Size}}' localhost/railscope
