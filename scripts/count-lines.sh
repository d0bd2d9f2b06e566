#!/bin/sh
# count-lines.sh counts the shipped lines of Go and C, per package and in total: all packages that a command of cmd/
# imports, on any platform. This excludes tests, fakes, fixtures and generators. An argument selects another checkout.
set -eu
cd "${1:-"$(dirname "$0")/.."}"

module=$(go list -m)
go list -e -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./cmd/... | grep "^$module/" | sort | {
	total=0
	while read -r package; do
		dir=${package#"$module"/}
		lines=$(find "$dir" -maxdepth 1 -type f \( -name '*.go' -o -name '*.[ch]' \) ! -name '*_test.go' \
			-exec cat {} + | wc -l)
		printf '%7d  %s\n' "$lines" "$dir"
		total=$((total + lines))
	done
	printf '%7d  total\n' "$total"
}
