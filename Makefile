# Every entry point. Requires git, make, a C compiler, Rust and Python >= 3.9; the tests, lint and the dashboard also require Node >= 20.19
# with npm. All other tools are installed into .tools/, in pinned versions.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

UV_VERSION := 0.13.8
MATURIN_VERSION := 1.16.0
GARAGE_VERSION := 2.5.0
DENY_VERSION := 0.20.2
INFERNO_VERSION := 0.12.8
ZIG_VERSION := 0.15.2
ZIGBUILD_VERSION := 0.24.0

# Oldest glibc that the worker archive and the wheels support: that of RHEL 8 and Debian 10.
DIST_GLIBC := 2.28

TOOLS := $(CURDIR)/.tools
UV := $(TOOLS)/uv/bin/uv
GARAGE := $(TOOLS)/bin/garage
BWRAP := $(TOOLS)/bin/bwrap
CADDY := $(TOOLS)/bin/caddy
# promtool is in the same folder.
PROMETHEUS := $(TOOLS)/bin/prometheus
CHROMIUM := $(TOOLS)/bin/chromium
DENY := $(TOOLS)/bin/cargo-deny
INFERNO := $(TOOLS)/bin/inferno-flamegraph
# Stamps. The python of an environment is a link to an interpreter that all share, so its modification time is of no use.
DEV := $(TOOLS)/dev/.installed
CLIENT := $(TOOLS)/client/.installed
RELEASE_CLIENT := $(TOOLS)/release-client/.installed
HOOKS := $(TOOLS)/hooks/.installed
OTEL := $(TOOLS)/otel/.installed
OPENAI := $(TOOLS)/openai/.installed
VASTAI := $(TOOLS)/vastai/.installed
SCHEMA := $(TOOLS)/schema/.installed
MANIFESTS := $(TOOLS)/manifests/.installed
SITE := $(TOOLS)/site/.installed
PEERS := $(TOOLS)/peers/.installed
ZIG := $(TOOLS)/zig/.installed
OPENAI_JS := tests/it/openai-js/node_modules/.installed
BULLMQ := lab/peers/bullmq/node_modules/.installed
# `stoke`, the compiled part of the Python package, and the wheels that contain it. Wheels of a debug build are in target/wheels, where every
# program in target/ looks for them; those of a release build are next to target/release/stoke, which looks there first.
STOKE := target/debug/stoke
LIBRARY := target/debug/lib_wire.so
WHEEL := target/wheels/.built
RELEASE_LIBRARY := target/release/lib_wire.so
RELEASE_WHEEL := target/release/wheels/.built
WHEEL_METADATA := target/metadata/.written
JS := sdk/js/node_modules/.installed
DASHBOARD := api/dashboard/dist/.built
DASHBOARD_NODE := api/dashboard/node_modules/.installed

export STOKE_UV := $(UV)
export STOKE_TEST_PYTHON := $(TOOLS)/client/bin/python
export STOKE_TEST_HOOKS_PYTHON := $(TOOLS)/hooks/bin/python
export STOKE_TEST_OTEL_PYTHON := $(TOOLS)/otel/bin/python
export STOKE_TEST_OPENAI_PYTHON := $(TOOLS)/openai/bin/python
export STOKE_TEST_VASTAI := $(TOOLS)/vastai/bin/vastai
export STOKE_BENCH_PEERS_BIN := $(TOOLS)/peers/bin
export STOKE_TEST_REDIS := $(TOOLS)/bin/test-redis
export STOKE_TEST_VALKEY := $(TOOLS)/bin/test-valkey
export STOKE_TEST_GARAGE := $(GARAGE)
export STOKE_TEST_BWRAP := $(BWRAP)
export STOKE_TEST_CADDY := $(CADDY)
export STOKE_TEST_MANIFESTS := $(TOOLS)/manifests/bin
export STOKE_TEST_PROMETHEUS := $(PROMETHEUS)
export STOKE_TEST_CHROMIUM := $(CHROMIUM)

# Everything is built into target/, because the recipes, the tests and the programs look there. A CARGO_TARGET_DIR in the environment is
# ignored: other checkouts may share that folder, and it would have no wheels and archives.
unexport CARGO_TARGET_DIR

WHEEL_SOURCES := sdk/python/tools/wheels.py LICENSE $(shell find sdk/python/src -type f \( -name '*.py' -o -name '*.pyi' -o -name py.typed \) 2>/dev/null)
JS_SOURCES := $(shell find sdk/js -path sdk/js/node_modules -prune -o -path sdk/js/dist -prune -o -type f \( -name '*.ts' -o -name '*.json' \) -print 2>/dev/null)
DASHBOARD_SOURCES := api/openapi.json $(shell find api/dashboard -type d \( -name node_modules -o -name dist -o -name tests -o -name test-results \) -prune -o -type f ! -name openapi.d.ts ! -name playwright.config.ts -print 2>/dev/null)

.PHONY: rust-models docs recording dashboard help demo dev test sync-client models it sim storm storm-mutants fuzz schema lint fmt bless openapi bench bench-docs bench-llm profile acceptance ci wheel test-garage clean stoke redis hostile hostile-tests bench-scripts bench-connections bench-workers bench-environments packing test-gpu load powercut chaos chaos-nightly upgrade mutants worker-dist test-worker-dist sim-policies test-deploy images monitoring test-dashboard screenshots wheels test-wheels test-wheels-aarch64 stoke-release

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

# --- run ---------------------------------------------------------------------------------------------------------------------

demo: stoke $(WHEEL) ## Run 12 real jobs on this machine (DEMO_JSON=1: one JSON document; DEMO_STAY=1: keep the dashboard open)
	@$(STOKE) demo --out demo-output $(if $(DEMO_JSON),--json) $(if $(DEMO_STAY),--stay)

dev: stoke $(WHEEL) ## Run the stack on this machine, data under ./.stoke
	@$(STOKE) dev

dashboard: $(DASHBOARD) ## Build the dashboard's page, which the next build of `stoke` contains

# Cargo unifies the features of dependencies over the packages that it builds. This feature selects those of the whole workspace with its
# tests, so that `stoke`, the tests and the chaos checker share one build of each dependency.
UNIFIED := --features stokehold-cli/unified

# Runs the tests of the packages and targets that follow, from the same build.
TEST := cargo test --locked -p stokehold-cli $(UNIFIED)

# `make test` builds everything that it tests in one call.
BUILD_STOKE = cargo build --locked -p stokehold-cli -p stokehold-runner-wire $(UNIFIED)
test: BUILD_STOKE = cargo build --locked --workspace --lib --bins --tests $(UNIFIED)

# Prints to standard error, so that `make demo DEMO_JSON=1` prints only the document to standard output. Without npm, the binary has no
# dashboard, and /dashboard answers with instructions.
stoke: $(if $(shell command -v npm),$(DASHBOARD)) ## Build target/debug/stoke, with the dashboard if npm is installed
	@$(BUILD_STOKE) 1>&2

docs: $(SITE) ## Render the documentation into target/site, with search; a dead link fails
	@python3 tests/docs
	@NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(TOOLS)/site/bin/mkdocs build --quiet
	@echo "wrote target/site; $(TOOLS)/site/bin/mkdocs serve shows it" >&2

# --- tools -------------------------------------------------------------------------------------------------------------------

$(UV):
	@echo "installing uv $(UV_VERSION) into .tools" >&2
	@mkdir -p $(TOOLS)
	@if python3 -m venv $(TOOLS)/uv >/dev/null 2>&1; then $(TOOLS)/uv/bin/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION) 1>&2; \
	else rm -rf $(TOOLS)/uv; python3 -m pip install -q --disable-pip-version-check --target $(TOOLS)/uv uv==$(UV_VERSION) 1>&2 \
	|| { echo "python3 has neither venv nor pip: install your system's python3-venv or python3-pip" >&2; exit 1; }; fi

# Cargo builds the compiled part together with `stoke`, so that shared dependencies are compiled once.
WHEELS := sdk/python/tools/wheels.py
wheel: $(WHEEL) ## Build the Python package into target/wheels, for tests and the demo
$(WHEEL): $(LIBRARY) $(WHEEL_SOURCES) $(WHEEL_METADATA)
	@python3 $(WHEELS) runner --library $(LIBRARY) --strip --metadata $(dir $(WHEEL_METADATA)) --platform linux_$(shell uname -m) --level 1 --out $(dir $@)
	@touch $@

$(RELEASE_WHEEL): $(RELEASE_LIBRARY) $(WHEEL_SOURCES) $(WHEEL_METADATA)
	@python3 $(WHEELS) runner --library $(RELEASE_LIBRARY) --strip --metadata $(dir $(WHEEL_METADATA)) --platform linux_$(shell uname -m) --out $(dir $@)
	@touch $@

# Cargo decides whether these files change.
$(LIBRARY): stoke ;
$(RELEASE_LIBRARY): stoke-release ;
stoke-release:
	@cargo build --locked --release -p stokehold-cli -p stokehold-runner-wire 1>&2

$(WHEEL_METADATA): sdk/python/pyproject.toml sdk/python/README.md sdk/python/rust/Cargo.toml | $(UV)
	@rm -rf $(dir $@) && mkdir -p $(dir $@)
	@cd sdk/python && $(UV) tool run -q --from maturin==$(MATURIN_VERSION) maturin pep517 write-dist-info --quiet --metadata-directory $(CURDIR)/$(dir $@) --interpreter python3 \
	>$(CURDIR)/$(dir $@)log 2>&1 || { cat $(CURDIR)/$(dir $@)log >&2; exit 1; }
	@touch $@

# Environment of an application: the package and its dependencies.
$(CLIENT): $(WHEEL)
	@$(UV) venv -q --clear $(TOOLS)/client
	@$(UV) pip install -q --python $(TOOLS)/client target/wheels/*.whl
	@touch $@

# The same environment with the release build, for measurements.
$(RELEASE_CLIENT): $(RELEASE_WHEEL)
	@$(UV) venv -q --clear $(TOOLS)/release-client
	@$(UV) pip install -q --python $(TOOLS)/release-client target/release/wheels/*.whl
	@touch $@

# Environment of a webhook receiver without a Stokehold SDK: the official verifier of Standard Webhooks.
$(HOOKS): tests/it/webhooks.requirements.txt | $(UV)
	@$(UV) venv -q --clear $(TOOLS)/hooks
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/hooks $<
	@touch $@

# Environment of a traced application: the package and OpenTelemetry's SDK.
$(OTEL): tests/it/tracing.requirements.txt $(WHEEL) | $(UV)
	@$(UV) venv -q --clear $(TOOLS)/otel
	@$(UV) pip install -q --require-hashes --python $(TOOLS)/otel -r $<
	@$(UV) pip install -q --python $(TOOLS)/otel target/wheels/*.whl
	@touch $@

# The official client of OpenAI, LiteLLM and LangChain, and an engine that speaks OpenAI's API on a CPU.
$(OPENAI): tests/it/openai.requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11' $(TOOLS)/openai
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/openai $<
	@touch $@

$(OPENAI_JS): tests/it/openai-js/package-lock.json
	@cd tests/it/openai-js && npm ci --ignore-scripts --silent --no-audit --no-fund && touch node_modules/.installed

# The official client of Vast.ai, unmodified, which the stand-in must satisfy.
$(VASTAI): lab/fake-vast/tests/vastai.requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11' $(TOOLS)/vastai
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/vastai $<
	@touch $@

# schemathesis, which tests the API against its OpenAPI document.
$(SCHEMA): tests/schema/requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11' $(TOOLS)/schema
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/schema $<
	@touch $@

# Validators with the schemas of Compose files and of Kubernetes.
$(MANIFESTS): tests/deploy/requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11' $(TOOLS)/manifests
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/manifests $<
	@touch $@

# MkDocs, which renders the documentation.
$(SITE): tests/docs/requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11.5' $(TOOLS)/site
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/site $<
	@touch $@

# Environment of the tests of the Python package: the package, and the pinned tools of sdk/python/dev.lock.
$(DEV): $(WHEEL) sdk/python/dev.lock
	@$(UV) venv -q --clear $(TOOLS)/dev
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/dev sdk/python/dev.lock
	@$(UV) pip install -q --no-deps --python $(TOOLS)/dev target/wheels/*.whl
	@touch $@

$(JS): sdk/js/package-lock.json
	@cd sdk/js && npm ci --silent --no-audit --no-fund
	@touch $@

sdk/js/dist/.built: $(JS_SOURCES) $(JS)
	@cd sdk/js && npm run --silent build
	@touch $@

$(DASHBOARD_NODE): api/dashboard/package-lock.json
	@cd api/dashboard && npm ci --silent --no-audit --no-fund 1>&2
	@touch $@

# The build measures the size of the first load, and fails if it is over 100 kB.
$(DASHBOARD): $(DASHBOARD_SOURCES) $(DASHBOARD_NODE)
	@cd api/dashboard && npm run --silent build 1>&2
	@touch $@

# The job queues that the benchmark compares Stokehold with. The benchmark reports a queue that cannot be installed as failed.
$(PEERS): lab/peers/requirements.txt | $(UV)
	@$(UV) venv -q --clear --python '>=3.11' $(TOOLS)/peers
	@$(UV) pip sync -q --require-hashes --python $(TOOLS)/peers $< && touch $@ || echo "the Python peers cannot be installed" >&2

# `npm ci` is not used, because it requires the optional builds for every platform in the lock file, which some registries lack.
$(BULLMQ): lab/peers/bullmq/package-lock.json
	@cd lab/peers/bullmq && npm install --no-save --ignore-scripts --silent --no-audit --no-fund && touch node_modules/.installed || echo "BullMQ cannot be installed" >&2

# Builds a tool for tests quickly, without debugging information.
INSTALL = CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug -q --locked --root $(TOOLS)

$(GARAGE):
	@echo "building garage $(GARAGE_VERSION), an S3 server for a test (some minutes, once)" >&2
	@$(INSTALL) --target-dir target/garage --version $(GARAGE_VERSION) --no-default-features --features bundled-libs,sqlite garage 1>&2
	@rm -rf target/garage

$(DENY):
	@echo "building cargo-deny $(DENY_VERSION) (some minutes, once)" >&2
	@$(INSTALL) --target-dir target/deny --version $(DENY_VERSION) cargo-deny 1>&2
	@rm -rf target/deny

$(INFERNO):
	@echo "building inferno $(INFERNO_VERSION), which draws flame graphs (a minute, once)" >&2
	@$(INSTALL) --target-dir target/inferno --version $(INFERNO_VERSION) inferno 1>&2
	@rm -rf target/inferno

# zig and cargo-zigbuild, which build for an older glibc than this machine's, and for other architectures.
$(ZIG): | $(UV)
	@echo "installing zig $(ZIG_VERSION) into .tools" >&2
	@$(UV) venv -q --clear $(TOOLS)/zig
	@$(UV) pip install -q --python $(TOOLS)/zig ziglang==$(ZIG_VERSION) cargo-zigbuild==$(ZIGBUILD_VERSION)
	@touch $@

# The Redis that `stoke dev` would run (the one on PATH, else a pinned one that it installs), and the pinned Valkey. The queue is tested on
# both.
redis: stoke | $(UV) ## Find or install the Redis and the Valkey of the tests
	@mkdir -p $(TOOLS)/bin && ln -sf "$$($(STOKE) find-redis)" $(TOOLS)/bin/test-redis
	@ln -sf "$$($(STOKE) find-redis --pinned)" $(TOOLS)/bin/test-valkey

# bubblewrap, which isolates handlers: the one on PATH, else Debian's package, unpacked here. If there is neither, its tests report that they
# are skipped.
$(BWRAP):
	@mkdir -p $(TOOLS)/bin
	@if command -v bwrap >/dev/null 2>&1; then ln -sf "$$(command -v bwrap)" $@; \
	elif command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then cd $(TOOLS) && apt-get download -qq bubblewrap >/dev/null 2>&1 \
	&& dpkg -x bubblewrap_*.deb bubblewrap && ln -sf $(TOOLS)/bubblewrap/usr/bin/bwrap $@; fi || true
	@[ -e $@ ] || echo "bubblewrap is neither on PATH nor available from apt: the tests of sandbox L2 are skipped" >&2

# Caddy, which terminates TLS in front of the API: the one on PATH, else Debian's package, unpacked here. If there is neither, its tests
# report that they are skipped.
$(CADDY):
	@mkdir -p $(TOOLS)/bin
	@if command -v caddy >/dev/null 2>&1; then ln -sf "$$(command -v caddy)" $@; \
	elif command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then cd $(TOOLS) && apt-get download -qq caddy >/dev/null 2>&1 \
	&& dpkg -x caddy_*.deb caddy && ln -sf $(TOOLS)/caddy/usr/bin/caddy $@; fi || true
	@[ -e $@ ] || echo "Caddy is neither on PATH nor available from apt: the tests of TLS are skipped" >&2

# Prometheus and promtool, which test the rules and the boards: those on PATH, else Debian's package, unpacked here.
$(PROMETHEUS):
	@mkdir -p $(TOOLS)/bin
	@if command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1; then ln -sf "$$(command -v promtool)" $(TOOLS)/bin/promtool \
	&& ln -sf "$$(command -v prometheus)" $@; \
	elif command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1; then cd $(TOOLS) && apt-get download -qq prometheus >/dev/null 2>&1 \
	&& dpkg -x prometheus_*.deb prometheus && rm -f prometheus_*.deb && ln -sf $(TOOLS)/prometheus/usr/bin/promtool $(TOOLS)/bin/promtool \
	&& ln -sf $(TOOLS)/prometheus/usr/bin/prometheus $@; fi || true
	@[ -e $@ ] || { echo "Prometheus is neither on PATH nor available from apt, and the tests of rules and boards need it: put prometheus and promtool on PATH" >&2; exit 1; }

# A browser for the dashboard's tests: the one on PATH, else Debian's packages, unpacked here. Fails if there is neither.
$(CHROMIUM): api/dashboard/tests/chromium.sh
	@$< $(TOOLS)

# --- deploy ------------------------------------------------------------------------------------------------------------------

# Settings of the builds for other machines. A release contains the dashboard, so it needs npm.
PORTABLE = ZIG_BIN=$(TOOLS)/zig/bin GLIBC=$(DIST_GLIBC) WHEEL_METADATA=$(CURDIR)/$(dir $(WHEEL_METADATA))
# Architectures of the wheels: x86_64, aarch64. Each takes a quarter of an hour on two cores.
ARCHS ?= $(shell uname -m)
wheels: $(ZIG) $(WHEEL_METADATA) $(DASHBOARD) $(JS) ## Build the wheels and the npm package of a release into target/dist/wheels; stops at the first failure (ARCHS="x86_64 aarch64": both)
	@$(PORTABLE) ARCHS="$(ARCHS)" OUT=$(CURDIR)/target/dist deploy/wheels/build.sh

test-wheels: stoke $(WHEEL) ## Install the wheels of `make wheels` into new environments, and run the demo and the first example there
	@ls target/dist/wheels/*.whl >/dev/null 2>&1 || $(MAKE) wheels
	@STOKE_TEST_WHEELS=$(CURDIR)/target/dist/wheels $(TEST) -p stokehold-tests --test it installed:: -- --include-ignored --nocapture

test-wheels-aarch64: ## Install the wheel for aarch64 in an emulated Debian, and run the demo there (as root, with debootstrap and qemu-user-static)
	@ls target/dist/wheels/*aarch64.whl >/dev/null 2>&1 || $(MAKE) wheels ARCHS=aarch64
	@tests/wheels/aarch64.sh $(CURDIR)/target/dist/wheels/*aarch64.whl $(TOOLS)/aarch64

worker-dist: $(ZIG) $(WHEEL_METADATA) $(if $(shell command -v npm),$(DASHBOARD)) ## Build the archive that turns any Linux with glibc 2.28 into a worker, into target/dist
	@$(PORTABLE) UV=$(UV) OUT=target/dist deploy/worker/build.sh

# OLDER=: the Debian to test on; the default is the oldest that mirrors still have.
OLDER ?= bullseye
test-worker-dist: stoke redis $(WHEEL) ## Turn an older Debian into a worker with the archive, and run a job there (as root, with debootstrap)
	@ls target/dist/*.tar.gz >/dev/null 2>&1 || $(MAKE) worker-dist
	@tests/worker_dist/older.sh $(OLDER) $(TOOLS)/older/$(OLDER)
	@STOKE_TEST_OLDER=$(TOOLS)/older/$(OLDER) STOKE_WORKER_DIST=$(CURDIR)/target/dist $(TEST) -p stokehold-tests --test worker_dist -- --nocapture

# BARE=: the Debian to install on.
BARE ?= bookworm
test-deploy: $(CADDY) ## Run the commands of docs/how-to/deploy.md in a bare Debian that boots systemd (as root, with debootstrap and systemd-container)
	@ls target/dist/*.tar.gz >/dev/null 2>&1 || $(MAKE) worker-dist
	@tests/deploy/bare.sh $(BARE) $(TOOLS)/bare/$(BARE)
	@STOKE_TEST_BARE=$(TOOLS)/bare/$(BARE) STOKE_WORKER_DIST=$(CURDIR)/target/dist $(TEST) -p stokehold-tests --test deploy -- --nocapture

# IMAGES_BASE=: a folder with an unpacked Debian, or an image in a registry.
IMAGES_BASE ?= $(TOOLS)/images/bookworm
images: ## Build the container images into target/images with buildah (as root; IMAGES_BASE=: an image of a registry, else debootstrap)
	@ls target/dist/*.tar.gz >/dev/null 2>&1 || $(MAKE) worker-dist
	@[ "$(IMAGES_BASE)" != "$(TOOLS)/images/bookworm" ] || tests/worker_dist/older.sh bookworm $(IMAGES_BASE)
	@ARCHIVE=$$(ls target/dist/*.tar.gz) BASE=$(IMAGES_BASE) OUT=$(CURDIR)/target/images deploy/containers/images.sh

# --- check -------------------------------------------------------------------------------------------------------------------

test: stoke redis $(WHEEL) $(CLIENT) $(HOOKS) $(VASTAI) $(DEV) $(BWRAP) $(CADDY) $(MANIFESTS) sdk/js/dist/.built $(PROMETHEUS) $(CHROMIUM) $(DASHBOARD) $(OTEL) $(OPENAI) $(OPENAI_JS) ## Run every test and print the totals
	@tests/run.sh

it: stoke redis $(WHEEL) $(CLIENT) $(HOOKS) $(BWRAP) $(CADDY) $(MANIFESTS) sdk/js/dist/.built $(OTEL) $(OPENAI) $(OPENAI_JS) ## Run only the end-to-end suite (TOPOLOGY=cluster, TOPOLOGY=failover: on such a Redis)
	STOKE_TEST_TOPOLOGY=$(TOPOLOGY) $(TEST) -p stokehold-tests --test it

# Every attack must fail; docs/explanation/security.md has the table of attempts.
hostile-tests: stoke redis $(WHEEL) $(CLIENT) $(BWRAP) $(CHROMIUM) ## Attack a stack as tenants, handlers, packages, workers and hosts, at full size (SURFACES="schemas worker": only these)
	STOKE_FULL_SIZE=1 $(TEST) -p stokehold-tests --test hostile -- $(SURFACES)

# Runs no Grafana: the test reads the boards, and sends their queries to a real Prometheus.
monitoring: stoke redis $(WHEEL) $(PROMETHEUS) ## Test the alerts, and every query of the boards, on a scraped stack
	$(TEST) -p stokehold-tests --test monitoring

test-dashboard: $(DASHBOARD) stoke $(WHEEL) $(CLIENT) sdk/js/dist/.built $(CHROMIUM) ## Test the dashboard in Chromium, against a stack with data (ONLY= a file or title)
	@cd api/dashboard && npm run --silent test -- $(ONLY)

recording: stoke redis $(WHEEL) $(CLIENT) ## Record the picture of the README from a real run
	@PATH=$(TOOLS)/client/bin:$$PATH STOKE_REDIS_SERVER=$(STOKE_TEST_REDIS) python3 docs/assets/quickstart/record.py $(STOKE)

screenshots: $(DASHBOARD) stoke $(WHEEL) $(CHROMIUM) ## Take new screenshots of the dashboard for the documentation, of a busy stack
	@mkdir -p docs/assets/dashboard
	@cd api/dashboard && npm run --silent screenshots

# Tests the pure core with faults in virtual time (gate D), then compares the Lua scripts with it.
sim: redis ## Simulate 10,000 seeds with faults (SEEDS=, SEED= one again), and compare the Lua scripts over 5,000 histories
	SEEDS=$(or $(SEEDS),10000) cargo test --locked --release -p stokehold-queue --test sim -- --nocapture
	STOKE_MODEL_CASES=5000 $(TEST) -p stokehold-queue --test it model

# A debug build has failpoints.
BUILD_CHAOS = cargo build --locked -p stokehold-cli -p stokehold-chaos $(UNIFIED)
chaos: redis $(WHEEL) ## Gate A: 10,000 jobs under more than 100 faults, then the checker (SEED=n repeats a run)
	$(BUILD_CHAOS)
	STOKE_BIN=$(CURDIR)/target/debug/stoke target/debug/chaos run --faults a --paced $(if $(SEED),--seed $(SEED))

# The previous release: the last tag, or its commit in a clone without tags.
PREVIOUS ?= $(or $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null),02dff84)
PREVIOUS_DIR = $(CURDIR)/target/previous/$(PREVIOUS)

upgrade: redis $(WHEEL) ## Roll a loaded system from the release PREVIOUS to this one, back, and forward again (SEED=n)
	test -d $(PREVIOUS_DIR) || git clone --quiet --no-checkout . $(PREVIOUS_DIR)
	git -C $(PREVIOUS_DIR) checkout --quiet $(PREVIOUS)
	$(MAKE) -C $(PREVIOUS_DIR) TOOLS=$(TOOLS) stoke wheel
	# The next release may write fields with more words.
	$(TEST) -p stokehold-queue --test it -- quarantine::fields_may_grow_by_words_that_this_release_does_not_know
	$(BUILD_CHAOS)
	STOKE_BIN=$(CURDIR)/target/debug/stoke target/debug/chaos run --faults upgrade --before $(PREVIOUS_DIR)/target/debug/stoke $(if $(SEED),--seed $(SEED))

# Release builds with failpoints and builds with planted bugs have names of their own, because they must not be used.
chaos-nightly: redis $(RELEASE_WHEEL) ## Gate B: SEEDS=5 runs of JOBS=100000, each compared with the same load without faults
	cargo build --locked --release -p stokehold-cli --features failpoints
	cp target/release/stoke target/release/stoke-failpoints
	cargo build --locked --release -p stokehold-chaos
	STOKE_BIN=$(CURDIR)/target/release/stoke-failpoints target/release/chaos nightly --seeds $(or $(SEEDS),5) --jobs $(or $(JOBS),100000) $(if $(SEED),--from $(SEED))

# Planted bugs that the load of the chaos run does not trigger, or not every time, with the tests that must catch them: mutant=tests.
QUEUE_MUTANTS = no-fence-check=redis::conformance:: poisoned-record=quarantine:: reply-without-bound=redis::conformance::
QUEUE_TEST = $(TEST) --quiet -p stokehold-queue --features stokehold-queue/mutants --test it --

mutants: redis $(WHEEL) ## Gate E: check that the checker catches each planted bug
	$(TEST) -p stokehold-queue --features stokehold-queue/mutants --lib mutants
	$(QUEUE_TEST) $(foreach one,$(QUEUE_MUTANTS),$(lastword $(subst =, ,$(one))))
	for one in $(QUEUE_MUTANTS); do \
	  if STOKE_MUTANT=$${one%%=*} $(QUEUE_TEST) $${one#*=} > /dev/null 2>&1; then echo "$${one%%=*}: nothing caught it"; exit 1; fi; \
	  echo "$${one%%=*}: caught by $${one#*=}"; \
	done
	$(BUILD_CHAOS) --features stokehold-cli/mutants
	cp target/debug/stoke target/debug/stoke-mutants
	STOKE_BIN=$(CURDIR)/target/debug/stoke-mutants target/debug/chaos mutants

# Tests the autoscaler in simulated time: killed at every await, with a market in which every call may fail.
storm: ## Simulate 100,000 rounds of autoscalers that are killed and paused
	$(TEST) -p stokehold-autoscaler --lib storm::whatever_happens_to_it_for_a_hundred_thousand_rounds -- --ignored --nocapture

storm-mutants: ## Check that a storm or a scenario catches each planted bug of the autoscaler
	$(TEST) -p stokehold-autoscaler --lib storm::mutants -- --ignored --nocapture

test-garage: $(GARAGE) ## Test the S3 client on Garage, a second implementation (builds it first, some minutes)
	$(TEST) -p stokehold-objects --test it garage_conforms -- --ignored --nocapture

CUTS ?= 100
powercut: redis ## Cut the power of Redis CUTS times in each durability class (SEED=n)
	CUTS=$(CUTS) SEED=$(or $(SEED),1) $(TEST) -p stokehold-tests --test powercut -- --nocapture --test-threads 1

# Relative to sdk/python, whose settings for ruff and mypy apply to all of them.
PYTHON_FOLDERS := . ../examples ../generate $(addprefix ../../,cli/src/demo cli/src/documented worker/src crates/client lab/llm lab/peers tests/schema tests/tidy tests/docs docs/assets/quickstart autoscaler/tests/it/kubernetes deploy/worker deploy/containers)
lint: $(UV) $(DEV) $(DENY) sdk/js/dist/.built $(DASHBOARD_NODE) ## Check formatting, lints, types, licences
	cargo fmt --all --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(DENY) --offline check bans licenses sources
	cd sdk/python && $(TOOLS)/dev/bin/ruff check $(PYTHON_FOLDERS) && $(TOOLS)/dev/bin/ruff format --check $(PYTHON_FOLDERS)
	cd sdk/python && $(TOOLS)/dev/bin/mypy
	python3 tests/tidy
	python3 tests/docs
	cd sdk/python && $(TOOLS)/dev/bin/python tools/unasync.py --check
	python3 crates/client/generate.py --check
	cd sdk && $(TOOLS)/dev/bin/python -m generate --check
	cd sdk/js && npm run --silent lint
	cd api/dashboard && npm run --silent lint

fmt: $(DEV) ## Format everything
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cd sdk/python && $(TOOLS)/dev/bin/ruff format $(PYTHON_FOLDERS) && $(TOOLS)/dev/bin/ruff check --fix $(PYTHON_FOLDERS)

bless: redis ## Rewrite the snapshots; read the diff before you commit it
	BLESS=1 INSTA_UPDATE=always $(TEST) -p stokehold-wire -p stokehold-api
	BLESS=1 $(TEST) -p stokehold-package --test it goldens::
	BLESS=1 $(TEST) -p stokehold-queue --test it diagram
	BLESS=1 $(TEST) -p stokehold-protocol --lib gpus::
	BLESS=1 $(TEST) -p stokehold-planner --test it goldens
	BLESS=1 $(TEST) -p stokehold-autoscaler --lib requests_are
	BLESS=1 $(TEST) metrics_are_documented
	BLESS=1 $(TEST) commands_are_documented

openapi: ## Rewrite api/openapi.json from the code, then run `make models`
	BLESS=1 $(TEST) -p stokehold-api openapi
	@$(MAKE) models

# First, because the tools of the rest need `stoke`, which may use a new model.
rust-models:
	@python3 crates/client/generate.py

models: rust-models $(DEV) ## Rewrite the models of the SDKs and the CLI, and docs/reference, from api/openapi.json and the code
	@cd sdk && $(TOOLS)/dev/bin/python -m generate
	@python3 tests/docs --write

# The asynchronous client is the source: _client.py is generated from _async_client.py, and so on.
sync-client: $(DEV) ## Rewrite the synchronous Python client from the asynchronous one
	@cd sdk/python && $(TOOLS)/dev/bin/python tools/unasync.py

schema: stoke redis $(WHEEL) $(SCHEMA) ## Test the running API against its OpenAPI document (EXAMPLES= per operation, SEED=)
	@EXAMPLES=$(EXAMPLES) SEED=$(SEED) tests/schema/run.sh

# libFuzzer needs a C++ compiler. The stable Rust compiler inserts the counters that guide it.
fuzz: ## Fuzz the parsers of untrusted input, 10 minutes per target (FUZZ_SECONDS=, FUZZ_TARGETS=, FUZZ_JOBS=)
	@fuzz/run.sh

# Runs five rounds of every part with every system. BENCH_ONLY=submit,drain,round_trip,crash,depth,width selects parts,
# BENCH_SYSTEMS=stokehold,raw systems, and BENCH_ROUNDS=1 the number of rounds.
bench: export STOKE_TEST_PYTHON := $(TOOLS)/release-client/bin/python
bench: $(RELEASE_WHEEL) $(RELEASE_CLIENT) sdk/js/dist/.built $(PEERS) $(BULLMQ) redis ## Compare the queue with other queues (BENCH_JSON=path also writes JSON)
	BENCH_JSON=$(if $(BENCH_JSON),$(abspath $(BENCH_JSON))) cargo bench --locked -p stokehold-tests --bench stack

bench-docs: ## Write docs/BENCHMARKS.md and its charts from BENCH_JSON=path
	BENCH_JSON=$(abspath $(BENCH_JSON)) cargo bench --locked -p stokehold-tests --bench stack -- docs

bench-llm: $(RELEASE_WHEEL) $(OPENAI) redis ## Compare a language model behind the queue with its engine alone (LLM_ROUNDS=, BENCH_JSON=path)
	@BENCH_JSON=$(if $(BENCH_JSON),$(abspath $(BENCH_JSON))) $(TOOLS)/openai/bin/python lab/llm/bench.py

profile: $(RELEASE_WHEEL) $(INFERNO) redis ## Record flame graphs of a submit and a drain into docs/assets/benchmarks (needs perf)
	STOKE_PROFILE_DIR=$(CURDIR)/docs/assets/benchmarks STOKE_TOOLS_BIN=$(TOOLS)/bin cargo bench --locked -p stokehold-tests --bench stack -- profile

test-gpu: stoke redis $(WHEEL) ## Test the worker on this machine's NVIDIA GPU (needs a driver; with PyTorch if TORCH=site-packages)
	$(if $(TORCH),STOKE_TEST_TORCH=$(abspath $(TORCH))) $(TEST) -p stokehold-tests --test gpu -- --test-threads 1 --nocapture

sim-policies: ## Compare the autoscaler with other policies, on synthetic traces or on those in TRACES=dir (SIM_ARGS=--json)
	@cargo build --locked --release -p stokehold-simulator 1>&2
	@target/release/stokehold-simulator --compare $(if $(TRACES),--traces $(abspath $(TRACES))) $(SIM_ARGS)

packing: ## Compare policies of placing models on GPUs, on a synthetic day or on TRACE=a.csv.gz
	TRACE=$(abspath $(TRACE)) cargo test --locked --release -p stokehold-vram --lib packing::policies_on_a_$(if $(TRACE),trace,day) -- --ignored --nocapture

bench-workers: $(RELEASE_WHEEL) redis ## Measure two workers compared with one, calls for several jobs, and the overhead of a worker (WORKERS_ARGS=--json)
	@cargo bench --locked -p stokehold-tests --bench workers -- $(WORKERS_ARGS)

bench-environments: $(RELEASE_WHEEL) redis ## Measure the second start of an endpoint, and the cost of one more package (ENVIRONMENTS_ARGS=--json)
	@cargo bench --locked -p stokehold-tests --bench environments -- $(ENVIRONMENTS_ARGS)

bench-scripts: redis ## Measure each Lua script inside Redis, microseconds per call
	@$(TEST) -p stokehold-queue --test it times_of_scripts -- --ignored --nocapture

bench-connections: redis ## Measure leases during long calls, over one connection and with the pool
	@$(TEST) -p stokehold-queue --test it long_calls_beside_leases -- --ignored --nocapture

hostile: $(RELEASE_WHEEL) redis ## Measure a healthy client next to 10,000 that are idle, slow or never read (HOSTILE_ARGS=--json)
	@cargo bench --locked -p stokehold-tests --bench hostile -- $(HOSTILE_ARGS)

load: $(RELEASE_WHEEL) ## Send 10,000 requests to the example endpoints (LOAD_ARGS="--rate 100 --json")
	@target/release/stoke bench load --demo $(LOAD_ARGS)

# Run one after the other, because they measure sizes and memory.
acceptance: stoke redis $(WHEEL) $(CLIENT) sdk/js/dist/.built ## Run tests of sizes and memory at full size (an hour)
	STOKE_FULL_SIZE=1 $(TEST) -p stokehold-queue --test it fairness:: -- --nocapture --test-threads 1
	STOKE_FULL_SIZE=1 $(TEST) -p stokehold-queue --test it no_counter_is_left_however_jobs_end -- --nocapture
	STOKE_TEST_LINES=1000000 $(TEST) -p stokehold-api --test it a_large_batch_takes_little_memory -- --ignored --nocapture
	STOKE_FULL_SIZE=1 $(TEST) -p stokehold-tests --test it schedules:: -- --nocapture
	STOKE_FULL_SIZE=1 $(TEST) -p stokehold-tests --test it batches:: -- --nocapture

ci: ## Run everything that CI runs, and print the time of each part
	@for part in lint docs test schema demo chaos; do \
	  since=$$(date +%s); $(MAKE) --no-print-directory $$part || exit; echo "== make $$part took $$(($$(date +%s) - since)) s"; \
	done

clean: ## Delete build outputs, but not downloaded tools
	cargo clean
	rm -rf demo-output sdk/js/dist api/dashboard/dist
