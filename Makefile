# `make run` and `make test` set up everything that they need; `make help` lists the other targets.
.DEFAULT_GOAL := help
.PHONY: help render announce run build test upgrade-test test-nocgo asan arm64 golden docs dashboards rules alerts services kubernetes slurm image image-run page lint score lines lab bench fuzz deps release-check release-snapshot release package-test lab-package .bin/package

# Version information for the binary. Outside a git checkout only the version is known.
git = $(shell git ls-files --error-unmatch VERSION >/dev/null 2>&1 && TZ=UTC git $(1))
stamp = -X github.com/prometheus/common/version.$(1)=$(2)
LDFLAGS = $(call stamp,Version,$(shell cat VERSION)) $(call stamp,Revision,$(call git,describe --always --dirty --abbrev=40 --exclude='*')) \
	$(call stamp,Branch,$(call git,rev-parse --abbrev-ref HEAD)) $(call stamp,BuildDate,$(call git,log -1 --format=%cd --date=format-local:%Y%m%d-%H:%M:%S))

# go-nvml's header uses functions that it deprecates. Its symbols are resolved when they are called, so a linker that
# resolves all of them at start breaks the program.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
LDFLAGS += -extldflags=-Wl,-z,lazy

# By default the race detector sleeps for 1 s at every exit of a program.
export GORACE ?= atexit_sleep_ms=0

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# The command to run: ARGS, else serve if this machine has RDMA devices, else the demo.
rdma = $(wildcard /sys/class/infiniband/*)
show = $(or $(ARGS),$(if $(rdma),serve,demo))

run: announce build ## build and show this machine's rails, or two simulated nodes: http://localhost:10091 (ARGS='--help' shows the flags)
	./railscope $(show)

announce:
	@$(info $(if $(ARGS),As asked: railscope $(ARGS),$(if $(rdma),RDMA on this machine ($(notdir $(rdma))): railscope serves it,No RDMA device on this machine: railscope demo shows two simulated nodes) at http://localhost:10091)):

build: deps ## build ./railscope, and ./railscope-bench, which writes its reports
	go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o railscope ./cmd/railscope
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o railscope-bench ./cmd/railscope-bench

test: deps ## vet, and every test under the race detector
	go vet -tags lab ./...
	go test -race -timeout 1h ./probe ./... # probe takes longest, so it starts first

upgrade-test: deps ## test a rolling upgrade from protocol 3
	go vet -tags upgrade ./cmd/railscope
	go test -count=1 -tags upgrade -run TestRollingUpgrade ./cmd/railscope

# The packages that build differently without C, the exposition, and tests for which the race detector is too slow. Of
# probe and cmd only the tests that depend on C run: `make test` runs the others.
nocgo = ./probe/internal/verbs ./probe/internal/worker ./collector/gpu ./collector/sampler ./exporter ./internal/nvml ./internal/sysfs
nocgo-part = ./probe ./cmd/railscope

test-nocgo: ## build without C (counters only, no GPU, no probe), and test the affected packages
	CGO_ENABLED=0 go build -buildvcs=false -o /dev/null ./cmd/railscope
	CGO_ENABLED=0 go vet $(nocgo) $(nocgo-part)
	CGO_ENABLED=0 go test -short $(nocgo)
	CGO_ENABLED=0 go test -short -run 'WithoutC|WithoutRDMA|Fleet|Surfaces|Endpoints|ExitCodes|DoctorPeer' $(nocgo-part)

asan: deps ## test the packages with C under AddressSanitizer
	FAKEVERBS_CFLAGS=-fsanitize=address go test -asan ./probe/internal/verbs ./probe/internal/memory ./internal/nvml

arm64: ## build for arm64 with C into .bin/arm64/, and test the probe under emulation
	LDFLAGS='$(LDFLAGS)' scripts/arm64.sh

golden: deps ## update the expected expositions in exporter/testdata
	go test ./exporter -update

docs: deps ## update the generated parts of docs/ and the PrometheusRule
	go test ./exporter ./doctor/check ./cmd/railscope ./internal/machines -run TestDocs -update
	go test ./deploy/rules -run 'TestTable|TestPrometheusRule' -update
	go test ./probe -run 'TestWeather|TestArrivals' -update

rules: deps .bin/promtool ## check and test the alerts, the metrics that they name, the expositions, and the compose file
	for f in exporter/testdata/*.prom; do .bin/promtool check metrics <$$f || exit 1; done
	.bin/promtool check rules --lint=all deploy/rules/*.yml
	.bin/promtool test rules deploy/rules/tests/*.yml
	PROMTOOL=$(CURDIR)/.bin/promtool go test ./deploy/rules
	cd test/check && go vet ./fleet ./fleetgen ./rules ./catalog ./compose ./otlp && PROMTOOL=$(CURDIR)/.bin/promtool go test -count=1 ./fleetgen ./rules ./catalog ./compose ./otlp # reads files outside its module, which the test cache does not track

alerts: ## test which alerts fire for a simulated pair with faults, in real time
	cd test/check && go vet ./demo && go test -count=1 ./demo # builds files outside its module, which the test cache does not track

services: .bin/victoria-metrics ## test storage, nixlbench and fleet against real servers (versitygw, etcd, VictoriaMetrics)
	cd test/storage && go vet ./... && go test -count=1 ./... # vet and test build files outside their module, which the test cache does not track
	cd test/etcd && go vet ./... && go test -count=1 ./...
	cd test/check && VICTORIAMETRICS=$(CURDIR)/.bin/victoria-metrics go test -count=1 -run TestVictoriaMetrics ./blame

dashboards: ## update the Grafana dashboards, and check their queries, and fleet's, with Prometheus' own storage
	go test ./dashboards -update
	cd test/check && go vet ./dashboards ./blame && go test -count=1 ./dashboards ./blame # reads files outside its module, which the test cache does not track

kubernetes: ## check the Helm chart, the kustomizations and node-problem-detector's plugin (ARGS=-update updates goldens and the table of values)
	cd test/check/npd && go vet ./... && go test -count=1 ./... # vet and test read files outside their module, which the test cache does not track
	cd test/check/kubernetes && go vet ./... && go test -count=1 ./... $(ARGS)

slurm: build ## test the recipes for Slurm with Debian's Slurm, in separate namespaces (as root)
	@scripts/need.sh munged=munge slurmctld=slurmctld slurmd=slurmd sbatch=slurm-client ip=iproute2 unshare=util-linux
	go vet -tags slurm ./test/slurm
	go test -count=1 -tags slurm -timeout 3m -exec 'unshare --mount --pid --fork --kill-child --mount-proc --net --uts' ./test/slurm $(ARGS)

image: build ## build the container image for this machine, without Docker
	scripts/image.sh railscope

image-run: image ## run the image once with the permissions of a pod
	scripts/image-test.sh

page: deps ## test the live page of the real binary in Chromium
	@scripts/need.sh chromium=chromium
	cd test/browser && go vet ./... && RAILSCOPE_REQUIRE_CHROMIUM=1 go test -count=1 -timeout 30m ./... # reads files outside its module, which the test cache does not track

render: build .bin/prometheus ## render the dashboards with Grafana's components into docs/img (ARGS=demo: query every panel with railscope demo)
	scripts/render.sh $(ARGS)

lint: .bin/golangci-lint ## golangci-lint, go vet and the rules of internal/arch over the Go code, shellcheck over the scripts
	@scripts/need.sh shellcheck=shellcheck
	scripts/lint.sh

score: ## run all tests that plant faults, and write docs/score.md
	go run ./test/score $(ARGS)

lines: ## count the shipped lines of Go and C, per package and in total
	@scripts/count-lines.sh

lab: deps ## start two RoCE nodes in virtual machines, and run their tests
	test/lab/run.sh $(ARGS)

bench: build .bin/node_exporter ## compare values and cost with node_exporter (ARGS='-scrapes 100' and others)
	go run ./test/peers $(ARGS)

fuzz: deps ## run every fuzz target for FUZZTIME (10 s)
	scripts/fuzz.sh $(or $(FUZZTIME),10s)

release-check: .bin/goreleaser ## check .goreleaser.yml and the systemd unit
	@scripts/need.sh systemd-analyze=systemd
	.bin/goreleaser check
	systemd-analyze security --no-pager --offline=true --threshold=25 deploy/systemd/railscope.service

release-snapshot: deps .bin/goreleaser .bin/sbom ## build deb, rpm, tar.gz, checksums and SBOM of this checkout, for amd64 and arm64, in dist/
	LDFLAGS='$(LDFLAGS)' scripts/release.sh snapshot

release: deps .bin/goreleaser .bin/sbom ## build packages and container image of the tag in VERSION, and upload them as a draft release
	LDFLAGS='$(LDFLAGS)' scripts/release.sh publish

package-test: ## test the packages in dist/
	@scripts/need.sh rpm=rpm man=man-db fish=fish zsh=zsh qemu-aarch64=qemu-user taskset=util-linux systemd-analyze=systemd
	go test -count=1 -tags dist ./deploy/packages

lab-package: deps ## install, upgrade and remove the deb of dist/ on a lab node with systemd
	test/lab/run.sh -systemd $(ARGS)

.bin/package: build
	scripts/package-files.sh ./railscope $@

deps:
	@scripts/need.sh go cc=gcc stdio.h=libc6-dev infiniband/verbs.h=libibverbs-dev

.bin/promtool .bin/prometheus:
	scripts/promtool.sh $@

# Tools have separate go.mod files, which keep the shipped one short.
.bin/golangci-lint: tools/go.mod tools/go.sum
	cd tools && go build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.bin/goreleaser: tools/goreleaser/go.mod tools/goreleaser/go.sum
	cd tools/goreleaser && go build -ldflags='-s -w' -o ../../$@ github.com/goreleaser/goreleaser/v2

.bin/victoria-metrics: tools/victoriametrics/go.mod tools/victoriametrics/go.sum
	cd tools/victoriametrics && CGO_ENABLED=0 go build -o ../../$@ github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics

.bin/sbom: tools/sbom/main.go tools/sbom/go.mod tools/sbom/go.sum
	cd tools/sbom && go build -o ../../$@ .

.bin/node_exporter: test/peers/node_exporter/go.mod test/peers/node_exporter/go.sum
	cd test/peers/node_exporter && CGO_ENABLED=0 go build -o ../../../$@ github.com/prometheus/node_exporter
