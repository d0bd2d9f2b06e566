#!/bin/sh
# lint.sh runs every linter, and fails at the end if any of them complained.
set -eu

bad=0
root=$PWD
for module in . test/check test/check/kubernetes test/check/npd test/storage test/etcd test/browser tools/sbom; do
	echo "golangci-lint run, go mod tidy -diff: $module"
	(cd "$module" && "$root"/.bin/golangci-lint run ./...) || bad=1
	(cd "$module" && go mod tidy -diff) || bad=1
done
echo "go vet: tests with tags, and without C"
go vet -tags "lab dist slurm upgrade" ./... || bad=1
CGO_ENABLED=0 go vet ./... || bad=1
echo "the house's own rules: internal/arch"
go test ./internal/arch || bad=1
echo "shellcheck"
files=$(git ls-files --cached --others --exclude-standard) # exits outside a checkout
# shellcheck disable=SC2046,SC2086 # lists of words
shellcheck $(grep -d skip -lIE '^#!.*[/ ](ba|da)?sh' $files) || bad=1
exit $bad
