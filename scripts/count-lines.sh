#!/bin/sh
# count-lines.sh counts the lines of Go and C that are shipped, per package and in total: every package that a
# command of cmd/ is built of, on any platform. Tests, fakes, fixtures and generators are no part of those, so
# they are not counted. An argument names another checkout to count.
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
