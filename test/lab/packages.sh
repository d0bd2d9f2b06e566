#!/usr/bin/env bash
# packages.sh DIR: put into DIR the deb of dist/ as old.deb, the rpm as old.rpm, and as new.deb what a later release would be: another version of
# the program, and files in /etc that its authors have changed.
set -euo pipefail
top=$(realpath "$(dirname "$0")/../..") dir=$1
debs=("$top"/dist/railscope_*_amd64.deb)
if [[ ! -e ${debs[0]} ]]; then
  echo "packages.sh: no deb in $top/dist: make release-snapshot" >&2
  exit 1
fi
rm -rf "$dir"
mkdir -p "$dir"
cp "${debs[0]}" "$dir/old.deb"
cp "$top"/dist/railscope-*.x86_64.rpm "$dir/old.rpm"
dpkg-deb -R "$dir/old.deb" "$dir/new"
version=$(dpkg-deb -f "$dir/old.deb" Version)+newer
sed -i "s/^Version: .*/Version: $version/" "$dir/new/DEBIAN/control"
go -C "$top" build -trimpath -buildvcs=false -ldflags "-X github.com/prometheus/common/version.Version=$version -extldflags=-Wl,-z,lazy" \
  -o "$dir/new/usr/bin/railscope" ./cmd/railscope
for conf in railscope/railscope.yml default/railscope; do
  echo "# a line of the newer package" >>"$dir/new/etc/$conf"
done
(cd "$dir/new" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb -Zzstd -z3 --root-owner-group -b "$dir/new" "$dir/new.deb" >/dev/null
rm -rf "$dir/new"
