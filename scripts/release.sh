#!/bin/sh
# release.sh snapshot|publish builds all packages for amd64 and arm64 in dist/. snapshot uses the checkout. publish uses a
# tag, uploads a draft release to GitHub, and image and chart to ghcr.io, and signs everything. It needs GITHUB_TOKEN,
# docker with buildx, helm and cosign, all logged in. LDFLAGS and CGO_CFLAGS come from the Makefile.
set -eu

scripts/need.sh go x86_64-linux-gnu-gcc=gcc-x86-64-linux-gnu aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu infiniband/verbs.h=libibverbs-dev
case $(uname -m) in
x86_64) scripts/need.sh /usr/aarch64-linux-gnu/include/stdio.h=libc6-dev-arm64-cross ;;
aarch64) scripts/need.sh /usr/x86_64-linux-gnu/include/stdio.h=libc6-dev-amd64-cross ;;
esac

VERSION=$(cat VERSION)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
COMMIT_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
CC_AMD64=x86_64-linux-gnu-gcc CC_ARM64=aarch64-linux-gnu-gcc
# The machine's own compiler has the same name as in other builds and tests, so that they share a cache.
case $(uname -m) in
x86_64) CC_AMD64=gcc ;;
aarch64) CC_ARM64=gcc ;;
esac
PATH=$PWD/.bin:$PATH # sbom
export LDFLAGS VERSION SOURCE_DATE_EPOCH COMMIT_DATE CC_AMD64 CC_ARM64
case $1 in
snapshot)
	skip=sign
	if ! docker buildx version >/dev/null 2>&1; then
		echo "No docker with buildx: no container image"
		skip=$skip,docker
	fi
	exec .bin/goreleaser release --snapshot --clean "--skip=$skip"
	;;
publish)
	tag=$(git describe --exact-match --tags 2>/dev/null || true)
	if [ "$tag" != "v$VERSION" ]; then
		echo "release.sh: VERSION says $VERSION, and this commit has ${tag:-no tag}: git tag -s v$VERSION" >&2
		exit 1
	fi
	for tool in helm cosign; do
		if ! command -v $tool >/dev/null; then
			echo "release.sh: $tool is missing: it is needed to publish and sign the chart" >&2
			exit 1
		fi
	done
	.bin/goreleaser release --clean
	helm package deploy/helm/railscope --destination dist
	said=$(helm push "dist/railscope-$VERSION.tgz" oci://ghcr.io/railscope/charts 2>&1)
	echo "$said"
	digest=$(printf '%s\n' "$said" | sed -n 's/^Digest: //p')
	cosign sign --yes "ghcr.io/railscope/charts/railscope@${digest:?helm push has not said which digest the chart has}"
	;;
*)
	echo "usage: release.sh snapshot|publish" >&2
	exit 2
	;;
esac
