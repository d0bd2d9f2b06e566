#!/bin/bash
# render.sh fleet|incidents|demo draws the Grafana dashboards with a real Prometheus and Grafana's own panel components
# into docs/img, in dark and light.
#   fleet  an hour of a simulated fleet (test/check/fleet) of NODES (16). Pictures of other numbers, and of SOUND=1, a
#          fleet without faults, go to dashboards/render/out.
#   incidents  the Fleet dashboard in each of the 10 incidents of docs/alerts.md. It is an error if the first screen does
#          not name node, rail and fault. Pictures go to dashboards/render/out.
#   demo   railscope demo, scraped for MINUTES (3) without faults, and again with a slow rail. It is an error if a panel
#          has no data and no text for that case. Pictures go to dashboards/render/out.
# PROMETHEUS and CHROMIUM override the programs that are found, RAILSCOPE overrides ./railscope.
set -euo pipefail

what=${1:-fleet} port=${PORT:-19097} minutes=${MINUTES:-3} railscope=${RAILSCOPE:-./railscope}
prometheus=${PROMETHEUS:-.bin/prometheus}

work=$(mktemp -d)
started=()
stop() { # stops only processes that this script started
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}
trap stop EXIT

serve() { # serve STEP starts Prometheus over $work/data
	cat >"$work/prometheus.yml" <<-END
		global: {scrape_interval: ${1}s, scrape_timeout: ${1}s, evaluation_interval: ${1}s}
		scrape_configs:
		  - job_name: railscope
		    static_configs: [{targets: [$2]}]
		rule_files: [$PWD/deploy/rules/*.yml]
	END
	"$prometheus" --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" --storage.tsdb.retention.time=30d \
		--web.listen-address="127.0.0.1:$port" --log.level=error &
	started+=($!)
	for _ in $(seq 600); do # Prometheus first reads the scraped data
		curl -sf "http://127.0.0.1:$port/-/ready" >/dev/null && return
		sleep 1
	done
	echo "Prometheus does not get ready on port $port: is the port taken? PORT names another" >&2
	exit 1
}

draw() {
	(cd dashboards/render && node render.mjs --prometheus "http://127.0.0.1:$port" ${CHROMIUM:+--chromium "$CHROMIUM"} "$@")
}

demo() { # demo NAME FLAG... runs two simulated nodes for MINUTES, and draws all but the first minute
	local name=$1
	shift
	"$railscope" demo --web.listen-address=127.0.0.1:$((port + 1)) "$@" >"$work/demo.log" 2>&1 &
	local pid=$!
	started+=("$pid")
	sleep $((minutes * 60))
	kill -0 "$pid" || { cat "$work/demo.log" >&2 && exit 1; }
	draw --range $((minutes * 60 - 60)) --scrape 5 --themes dark --folded open --name="-$name" --empty || bad=1
	kill "$pid"
	wait "$pid" || true
}

scripts/need.sh node=nodejs npm=npm chromium=chromium pngquant=pngquant curl=curl
if [ ! -d dashboards/render/node_modules ]; then
	# npm ci does not work: it requires rollup's packages for all systems in the lock, which not every registry has.
	(cd dashboards/render && npm install --no-save)
fi
(cd dashboards/render && npx tsc --noEmit && node schema.mjs && npx vite build --logLevel error)

case $what in
fleet)
	until=$(date +%s) nodes=${NODES:-16} out=../../docs/img every=30
	[ "$nodes${SOUND:-}" = 16 ] || out=out/$nodes${SOUND:+-sound}
	lasts=70m
	[ "$nodes" -lt 500 ] || every=60 lasts=30m
	(cd test/check && go run ./fleet -out "$work/data" -until "$until" -nodes "$nodes" -every "${every}s" -lasts $lasts ${SOUND:+-sound})
	serve $every ""
	node="node-03:10091"
	[ "$nodes" -gt 2 ] || node="node-01:10091"
	draw --to "$until" --scrape $every --out "$out" --height 3200 --var "node.instance=$node" --var "probe.instance=$node"
	[ "$out" != ../../docs/img ] || pngquant --force --ext .png --speed 1 64 docs/img/dashboard-*.png
	;;
incidents)
	(cd test/check && go test -count=1 ./rules -run TestIncidents -args -keep "$work/incidents")
	bad=0
	for dir in "$work"/incidents/*; do
		rm -rf "$work/data"
		mv "$dir/data" "$work/data"
		serve 60 ""
		mapfile -t first <"$dir/first"
		draw --to "$(cat "$dir/to")" --scrape 60 --only fleet --themes dark --name="-${dir##*/}" "${first[@]/#/--first=}" || bad=1
		kill "${started[-1]}"
		wait "${started[-1]}" || true
	done
	exit $bad
	;;
demo)
	serve 5 "'127.0.0.1:$((port + 1))', '127.0.0.1:$((port + 2))'"
	bad=0
	demo sound
	demo slow --degrade=rail1=0.3
	exit $bad
	;;
*)
	echo "render.sh: $what is neither fleet, incidents nor demo" >&2
	exit 2
	;;
esac
