#!/bin/sh
# lint.sh runs every linter, and fails at the end if any of them complained.
set -eu

bad=0
echo "golangci-lint run"
.bin/golangci-lint run ./... || bad=1
(cd test/check && ../../.bin/golangci-lint run ./...) || bad=1
(cd test/check/kubernetes && ../../../.bin/golangci-lint run ./...) || bad=1
(cd test/check/npd && ../../../.bin/golangci-lint run ./...) || bad=1
(cd tools/sbom && ../../.bin/golangci-lint run ./...) || bad=1
(cd test/storage && ../../.bin/golangci-lint run ./...) || bad=1
(cd test/etcd && ../../.bin/golangci-lint run ./...) || bad=1
(cd test/browser && ../../.bin/golangci-lint run ./...) || bad=1
echo "go mod tidy -diff"
go mod tidy -diff || bad=1
(cd test/check && go mod tidy -diff) || bad=1
(cd test/check/kubernetes && go mod tidy -diff) || bad=1
(cd test/check/npd && go mod tidy -diff) || bad=1
(cd tools/sbom && go mod tidy -diff) || bad=1
(cd test/storage && go mod tidy -diff) || bad=1
(cd test/etcd && go mod tidy -diff) || bad=1
(cd test/browser && go mod tidy -diff) || bad=1
echo "shellcheck"
files=$(git ls-files --cached --others --exclude-standard) # exits outside a checkout
# shellcheck disable=SC2046,SC2086 # lists of words
shellcheck $(grep -d skip -lIE '^#!.*[/ ](ba|da)?sh' $files) || bad=1
exit $bad
