#!/bin/sh
# fuzz.sh TIME runs every fuzz target of the module for that long, one by one.
# Minimizing an input that reaches something new may not take all of it, which it
# does by default where the input is large.
set -eu

time=$1
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		echo "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$package"
	done
done
