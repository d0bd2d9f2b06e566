#!/bin/sh
# fuzz.sh TIME runs every fuzz target of the module for that long, one by one.
set -eu

time=$1
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
	done
done
