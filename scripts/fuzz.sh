#!/bin/sh
# fuzz.sh TIME runs every fuzz target of the module for that time, one by one. It limits the time to minimize an input,
# which by default takes the whole time for a large input.
set -eu

time=$1
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$package"
	done
done
