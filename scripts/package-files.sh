#!/bin/sh
# package-files.sh RAILSCOPE DIR writes the packages' other files: the manual page and completions, which it generates
# from the program, and DIR/doc with the licenses of the program's Go modules. RAILSCOPE is the program, built for this
# machine, with RAILSCOPE-bench in the same directory.
set -eu

railscope=$1 dir=$2
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
rm -rf "$dir"
mkdir -p "$dir/doc/dashboards" "$dir/doc/rules"

# The parser prints a page of bare lists. The page takes its flags and commands from there, and the rest from
# deploy/packages/man.
{
	printf '.TH RAILSCOPE 1 "%s" "railscope %s" "User Commands"\n' \
		"$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)" "$(cat VERSION)"
	cat deploy/packages/man/head.man
	"$railscope" --help-man | awk '
		/^\.SH "OPTIONS"/ { on = 1 }
		!on { next }
		/^\.SS$/ { getline; hide = /help \[<command>/; if (hide) next; gsub(/\\fB|\\fR/, ""); gsub(/-/, "\\-"); print ".SS " $0; next }
		hide { next }
		/^\./ { print; next }
		/^\\fB--source\.[a-z.]+\\fR$/ { sub(/--/, "--[no-]") }
		{ gsub(/\\/, "\\\\"); gsub(/\\\\f/, "\\f"); gsub(/-/, "\\-"); sub(/^'\''/, "\\\\\\&'\''"); print }'
	cat deploy/packages/man/tail.man
} >"$dir/railscope.1"
gzip -9nf -c "$dir/railscope.1" >"$dir/railscope.1.gz"

commands=$("$railscope" --help-man | sed -n 's/^\\fB\([a-z]*\)\( .*\)\\fR$/\1/p' | grep -vx 'railscope\|help' | paste -sd' ')
[ -n "$commands" ]
for file in deploy/packages/completion/*; do
	sed "s/@COMMANDS@/$commands/" "$file" >"$dir/$(basename "$file")"
done

{
	echo "railscope and railscope-bench contain these Go modules and the Go standard library."
	go version -m "$railscope" "$railscope-bench" | awk '$1 == "dep" { print $2 "@" $3 }' | sort -u | while read -r module; do
		where=$(go list -m -f '{{.Dir}}' "${module%@*}")
		[ -n "$where" ] || where=$(go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
		files=$(find "$where" -maxdepth 1 -type f \( -iname 'license*' -o -iname 'copying*' -o -iname 'notice*' \) | sort)
		if [ -z "$files" ]; then
			echo "package-files.sh: $module has no license file in $where" >&2
			exit 1
		fi
		printf '\n==== %s\n\n' "$module"
		# shellcheck disable=SC2086 # a list of files without spaces
		cat $files
	done
	printf '\n==== Go %s\n\n' "$(go env GOVERSION)"
	cat "$(go env GOROOT)/LICENSE"
} >"$dir/doc/THIRD-PARTY.txt"

cp -r README.md CHANGELOG.md docs deploy/systemd/drop-ins "$dir/doc"
cp -r dashboards/grafana.com dashboards/provisioning "$dir/doc/dashboards"
cp deploy/rules/*.yml deploy/rules/prometheusrule.yaml "$dir/doc/rules" # other files there are only for the checkout
# The packages must not depend on the time or the user of the checkout.
chmod -R u=rwX,go=rX "$dir"
find "$dir" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
