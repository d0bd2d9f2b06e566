#!/bin/sh
# lint.sh runs every linter and says at the end whether one of them complained.
set -eu

bad=0
echo "golangci-lint run"
.bin/golangci-lint run ./... || bad=1
echo "go mod tidy -diff"
go mod tidy -diff || bad=1
echo "shellcheck"
git ls-files -z --cached --others --exclude-standard |
	xargs -0 grep -lIE '^#!.*[/ ](ba|da)?sh' 2>/dev/null |
	xargs -r shellcheck || bad=1
exit $bad
