# Builds, tests and measures sumlink; `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
BINARY := $(TARGET_DIR)/release/sumlink
EDGE := $(TARGET_DIR)/release/sumlink-edge
LAB := $(TARGET_DIR)/release/sumlink-lab
PACKAGES := -p sumlink -p sumlink-edge-cli -p sumlink-lab-cli
TOOLS := $(TARGET_DIR)/tools
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
HOST := $(shell rustc -vV 2> /dev/null | sed -n 's/^host: //p')

# Runs a command as a timed step; `--table` prints the times of all steps.
TIMED := scripts/timed.sh

# Seconds for each fuzz target.
FUZZ_SECONDS ?= 10

.PHONY: all build static install dist test-packages test-packages-quick demo peers bench \
	bench-throughput bench-matrix bench-pack bench-unpack validate papers papers-mmwave check test test-cargo test-unit test-doc test-seeds test-fuzz test-python \
	python-venv test-long nightly instructions ns3 ns3-test lint lint-format lint-clippy lint-doc \
	lint-deny lint-wasm clean help

all: build ## Same as build

build: ## Build the programs: target/release/sumlink, sumlink-edge, sumlink-lab
	$(CARGO) build --release --locked $(PACKAGES)

$(BINARY) $(EDGE) $(LAB):
	$(CARGO) build --release --locked $(PACKAGES)

# Without the kernel part, so that the build needs neither clang nor a library. The result runs on any
# Linux of that architecture.
STATIC_TARGET ?= $(shell uname -m)-unknown-linux-musl
STATIC := $(TARGET_DIR)/$(STATIC_TARGET)/release/sumlink
# For another processor, STATIC_RUNNER runs a program of it: qemu-aarch64-static, qemu-arm-static.
STATIC_RUNNER ?=
# ring and SQLite contain C code; without musl-gcc, any C compiler for the architecture suffices.
# Debian's cross compilers have these names; rustc's own linker needs no C library.
STATIC_CROSS := $(patsubst aarch64-%,aarch64-linux-gnu-gcc,\
	$(patsubst armv7-%,arm-linux-gnueabihf-gcc,$(STATIC_TARGET)))
ifeq ($(firstword $(subst -, ,$(STATIC_TARGET))),$(shell uname -m))
STATIC_CC := CC_$(subst -,_,$(STATIC_TARGET))="$(shell command -v musl-gcc || command -v cc)"
else
STATIC_CC := CC_$(subst -,_,$(STATIC_TARGET))=$(STATIC_CROSS) \
	CARGO_TARGET_$(shell echo '$(STATIC_TARGET)' | tr a-z- A-Z_)_LINKER=rust-lld
endif
# musl has no separate functions for large files: all of its files are.
STATIC_CC += LIBSQLITE3_FLAGS=-DSQLITE_DISABLE_LFS

static: ## Build sumlink as one static binary, without the kernel part
	@libdir=$$(rustc --print target-libdir --target $(STATIC_TARGET)); \
	if [ ! -d "$$libdir" ]; then \
		if ! command -v rustup > /dev/null; then \
			echo "the target $(STATIC_TARGET) is missing, and so is rustup;" \
				"install the target with your distribution" >&2; \
			exit 1; \
		fi; \
		rustup target add $(STATIC_TARGET); \
	fi
	$(CARGO) fetch --locked --target $(STATIC_TARGET)
	$(STATIC_CC) RUSTFLAGS="$${RUSTFLAGS:-} $$(scripts/remap.sh)" \
		$(CARGO) build --release --locked -p sumlink --bin sumlink --no-default-features --features postgres --target $(STATIC_TARGET)
	STATIC_RUNNER="$(STATIC_RUNNER)" scripts/check-static.sh $(STATIC)

# After `make build` it only copies files, so that root needs no Rust toolchain.
install: $(BINARY) $(EDGE) $(LAB) ## Install programs, manual pages, completions and systemd units (PREFIX, DESTDIR)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 0755 $(BINARY) $(EDGE) $(LAB) $(DESTDIR)$(PREFIX)/bin/
	rm -rf $(TARGET_DIR)/share/man
	mkdir -p $(TARGET_DIR)/share
	@for program in $(BINARY) $(EDGE) $(LAB); do $$program man --out $(TARGET_DIR)/share/man; done
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 $(TARGET_DIR)/share/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	@for program in $(BINARY) $(EDGE) $(LAB); do \
		name=$$(basename $$program); \
		for shell in bash zsh fish; do \
			$$program completions $$shell > $(TARGET_DIR)/share/completion.$$shell; \
		done; \
		install -m 0644 $(TARGET_DIR)/share/completion.bash \
			$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name; \
		install -m 0644 $(TARGET_DIR)/share/completion.zsh \
			$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$name; \
		install -m 0644 $(TARGET_DIR)/share/completion.fish \
			$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	@for unit in sumlink-client.service sumlink-gateway.service sumlink-server.service sumlink-server.socket \
		sumlink-edge.service; do \
		sed 's|/usr/bin/|$(PREFIX)/bin/|' packaging/systemd/$$unit \
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

# PACKAGE_VERSION, PACKAGE_MAINTAINER and OPENWRT_ARCH: see scripts/dist.sh. Packages of several
# architectures may be made one after the other.
dist: static ## Make packages (deb, rpm, apk, ipk, tar), a container image, an SBOM and checksums, in dist/
	STATIC_RUNNER="$(STATIC_RUNNER)" scripts/dist.sh $(STATIC) $(STATIC_TARGET) dist
	scripts/sbom.py --target $(STATIC_TARGET) dist/sumlink-$(VERSION)-$(STATIC_TARGET).cdx.json
	cd dist && sha256sum $$(ls | grep -v SHA256SUMS) > SHA256SUMS && cat SHA256SUMS

# The packages are made of PACKAGED, and installed in a minimal Debian in namespaces (root). APK and
# OPKG name the package managers of Alpine and OpenWrt, if present.
PACKAGED ?= $(STATIC)

test-packages: ## Test the packages: install, start, upgrade and remove each of them (root; after make static)
	CARGO_TARGET_DIR=$(TARGET_DIR) $(PYTHON) scripts/packages --target $(STATIC_TARGET) $(PACKAGED)

$(TARGET_DIR)/debug/sumlink:
	$(CARGO) build --all-features --locked -p sumlink --bin sumlink

# Only the contents of the packages, made of the program of the Rust tests.
test-packages-quick: $(TARGET_DIR)/debug/sumlink
	mkdir -p $(TARGET_DIR)/packages
	objcopy --strip-all $(TARGET_DIR)/debug/sumlink $(TARGET_DIR)/packages/sumlink
	CARGO_TARGET_DIR=$(TARGET_DIR) $(PYTHON) scripts/packages --quick --target $(STATIC_TARGET) $(TARGET_DIR)/packages/sumlink

demo: ## Compare two emulated links, alone and bonded: a table and a chart
	scripts/setup.sh demo
	$(MAKE) build
	$(LAB) demo

# Only comparisons in the laboratory use these programs: `sumlink-lab run` finds them in
# target/peers/bin, and skips the missing ones.
AGGLIGATOR_VERSION := 0.18.12
PEERS := $(TARGET_DIR)/peers

peers: ## Build other multipath programs for comparisons, in target/peers/bin
	CARGO_TARGET_DIR=$(PEERS)/build $(CARGO) install aggligator-util --version $(AGGLIGATOR_VERSION) \
		--bin agg-tunnel --no-default-features --locked --root $(PEERS)
	CARGO_TARGET_DIR=$(PEERS)/build $(CARGO) install --path peers/noq --locked --root $(PEERS)

# BENCH_FLAGS="--rows 'unequal/*' --seeds 3" measures a part of the matrix. An interrupted
# measurement resumes.
BENCH_FLAGS ?=

bench: bench-throughput bench-matrix ## Measure all promises, into docs/results (hours; BENCH_FLAGS=--quick: minutes)

# The throughput of the transport needs idle cores. The engine's own figure shows its share of the
# processor time.
bench-throughput:
	scripts/setup.sh demo
	$(CARGO) bench --locked -p sumlink-engine --bench session
	$(CARGO) bench --locked -p sumlink-transport --bench throughput -- 2 5 3

bench-matrix:
	$(MAKE) build peers
	$(LAB) bench $(BENCH_FLAGS)

# The complete runs, with the traffic of each link over time. From them, `sumlink-lab bench` can judge
# the results again or resume the measurement.
BENCH_RUNS := docs/results/runs.tar.xz

bench-pack: ## Pack the runs of lab-out/bench into docs/results
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --exclude='.tmp*' -C lab-out/bench -c . \
		| xz -9e -T1 > $(BENCH_RUNS).new
	mv $(BENCH_RUNS).new $(BENCH_RUNS)

bench-unpack: ## Unpack the runs of docs/results into lab-out/bench
	mkdir -p lab-out/bench
	tar -C lab-out/bench --skip-old-files -xJf $(BENCH_RUNS)

validate: ## Compare goodput in simulator and laboratory, into docs/simulator.md (4 minutes)
	scripts/setup.sh demo
	$(MAKE) build
	scripts/validate.py $(LAB) docs/simulator.md

# PAPERS_FLAGS="--only fairness" measures a part. "--minutes 10" starts no measurement after ten
# minutes and exits with 3; the same command then resumes. Finished measurements are kept in
# lab-out/papers.
PAPERS_FLAGS ?=

papers: ## Reproduce figures of the papers, in docs/results/papers (hours, root)
	scripts/setup.sh test
	$(MAKE) build python-venv
	$(PYTHON_VENV)/bin/python scripts/papers $(LAB) $(PAPERS_FLAGS)

# Chapter 3 of the thesis, by the simulator alone.
MMWAVE := docs/results/mmwave
MMWAVE_EXPERIMENTS := jain overhead k k-60 gamma stations mobility mobility-skip

papers-mmwave: ## Reproduce figures of 60 GHz initial access, in docs/results/mmwave (20 minutes)
	$(MAKE) build
	$(LAB) mmwave figures --out $(MMWAVE)
	set -e; for name in $(MMWAVE_EXPERIMENTS); do \
		$(LAB) mmwave run scenarios/mmwave/$$name.toml --out $(MMWAVE); \
	done

# Under GPL-2.0, like ns-3. It links only the core of sumlink, and no other target needs it.
ns3: ## Build the edge node in ns-3 (optional, GPL-2.0, Debian's libns3-dev): target/ns3/sumlink-ns3
	scripts/setup.sh ns3
	CARGO_TARGET_DIR=$(TARGET_DIR) $(MAKE) -C ns3 -j$$(nproc) TARGET_DIR=$(TARGET_DIR)/ns3 CARGO="$(CARGO)"

ns3-test: ns3 ## Test ns3/run: refused arguments and short runs
	CARGO_TARGET_DIR=$(TARGET_DIR) ns3/test_run.sh

# Without tests of complete programs and long tests: a few minutes from a clean clone.
check: ## Check formatting, clippy and unit tests; for use during development
	scripts/setup.sh lint
	@$(TIMED) --start
	$(TIMED) format $(MAKE) lint-format
	$(TIMED) clippy $(MAKE) lint-clippy
	$(TIMED) "unit tests" $(MAKE) test-unit
	@$(TIMED) --table

test: ## Run all tests that a change must pass, including end-to-end tests
	scripts/setup.sh test
	@$(TIMED) --start
	$(TIMED) "Rust tests" $(MAKE) test-cargo
	$(TIMED) "documentation examples" $(MAKE) test-doc
	$(TIMED) "Python package" $(MAKE) test-python
	$(TIMED) "fuzz seeds" $(MAKE) test-seeds
	$(TIMED) "contents of packages" $(MAKE) test-packages-quick
	@$(TIMED) --table

# SUMLINK_SKIP_NS3=1 skips the tests that need ns-3, on systems without it.
nightly: ## Run all tests in full, with fuzzing, random tests, packages, notebooks, ns-3 and instruction counts
	scripts/setup.sh nightly
	@$(TIMED) --start
	$(TIMED) "Rust tests, in full" $(MAKE) test-cargo NEXTEST_FLAGS="--profile nightly --run-ignored all"
	$(TIMED) "documentation examples" $(MAKE) test-doc
	$(TIMED) "Python package, in full" $(MAKE) test-python PYTHON_PROFILE=python PYTEST_FLAGS=
	$(TIMED) fuzzing $(MAKE) test-fuzz FUZZ_SECONDS=$(if $(filter command line,$(origin FUZZ_SECONDS)),$(FUZZ_SECONDS),60)
	$(if $(SUMLINK_SKIP_NS3),@echo "SUMLINK_SKIP_NS3 is set: the program in ns-3 is neither built nor tested",$(TIMED) ns-3 $(MAKE) ns3-test)
	$(TIMED) "instruction counts" $(MAKE) instructions
	$(TIMED) "static build" $(MAKE) static
	$(TIMED) packages $(MAKE) test-packages
	$(TIMED) "random tests" $(MAKE) test-long
	@$(TIMED) --table

# Instruction counts are reproducible; wall times on a shared machine are not.
instructions: ## Count instructions of the engine's hot paths, and compare them with the recorded ones
	CARGO_TARGET_DIR=$(TARGET_DIR) scripts/instructions.sh

# NEXTEST_FLAGS="--profile nightly --run-ignored all" also runs the long tests.
NEXTEST_FLAGS ?=
RUNNER := CARGO_TARGET_$(shell echo '$(HOST)' | tr a-z- A-Z_)_RUNNER
NEXTEST = NEXTEST_NO_INPUT_HANDLER=1 $(RUNNER)=$(CURDIR)/scripts/test-runner.sh CARGO="$$(command -v $(CARGO))" \
	"$$(scripts/tool.sh cargo-nextest)" nextest run --all-features --locked $(NEXTEST_FLAGS)

# Random tests have the same cases in each run, so that a change is never blamed for an old fault.
# `make nightly` and `make test-long` try new ones. Targets are not selected: tests run examples,
# which Cargo builds as programs only in its default selection (`--example` builds a test harness).
test-cargo:
	$(if $(findstring nightly,$(NEXTEST_FLAGS)),,PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-1}) \
		$(NEXTEST)

test-unit:
	$(NEXTEST) --lib --bins

test-doc:
	$(CARGO) test --doc --all-features --locked

# A virtual environment with the packages of requirements-test.txt. The tests use the installed
# package, and compare its runs with those of sumlink-lab.
PYTHON ?= python3
PYTHON_VENV := $(TARGET_DIR)/python-venv
# The notebook and the comparison with an optimized build take minutes; `make nightly` runs them.
PYTEST_FLAGS ?= -m "not nightly"
# Cargo profile of the package: `python` is that of an installation.
PYTHON_PROFILE ?= dev

python-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "the Python package needs Python 3.11 or newer: PYTHON=python3.12 make test-python" >&2; exit 1; }
	$(PYTHON) -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r python/requirements-test.txt

# Uses the profile of the Rust tests, to share their build.
# The program is built as for the Rust tests, so that no dependency is compiled with other features.
test-python: python-venv ## Build the Python package, install it in target/python-venv and test it
	MATURIN_PEP517_ARGS="--profile $(PYTHON_PROFILE)" CARGO_TARGET_DIR=$(TARGET_DIR) PATH="$(PYTHON_VENV)/bin:$$PATH" \
		$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall ./python
	$(PYTHON_VENV)/bin/pip check --disable-pip-version-check
	MYPY_CACHE_DIR=$(TARGET_DIR)/mypy $(PYTHON_VENV)/bin/mypy --config-file python/pyproject.toml python/sumlink_sim
	MYPY_CACHE_DIR=$(TARGET_DIR)/mypy MYPYPATH=python $(PYTHON_VENV)/bin/stubtest --mypy-config-file python/pyproject.toml sumlink_sim._native
	$(CARGO) test --no-run --all-features --locked --test scenarios
	SUMLINK_LAB=$(TARGET_DIR)/debug/sumlink-lab $(PYTHON_VENV)/bin/pytest -c python/pyproject.toml --rootdir python \
		-o cache_dir=$(TARGET_DIR)/pytest $(PYTEST_FLAGS) python/tests

# Random tests of sessions and of complete bonds, for nightly runs. Each run uses new cases, unless
# SEED=N chooses them.
CASES ?= 100000
SEED ?=
RANDOM_TESTS = PROPTEST_CASES=$(CASES) $(if $(SEED),PROPTEST_RNG_SEED=$(SEED)) $(CARGO) test --release --locked --lib

test-long: ## Run the random tests with many cases (CASES=100000; SEED=N repeats a run)
	$(RANDOM_TESTS) -p sumlink-engine -p sumlink-schedulers every_byte_arrives_once
	$(RANDOM_TESTS) -p sumlink-sim adversary -- --nocapture

# Runs each fuzz target once on each of its seeds, without instrumentation.
test-seeds:
	@command -v c++ > /dev/null || { echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2; exit 1; }
	$(CARGO) build --all-features --locked -p sumlink-fuzz --bins
	@for source in fuzz/fuzz_targets/*.rs; do \
		name=$$(basename $$source .rs); \
		echo "fuzz target $$name: $$(ls fuzz/seeds/$$name | wc -l) seeds"; \
		$(TARGET_DIR)/debug/$$name -timeout=10 -rss_limit_mb=2048 -verbosity=0 -runs=0 fuzz/seeds/$$name; \
	done

# The part of libFuzzer's instrumentation that a stable compiler supports. With --target, cargo does
# not apply it to build scripts.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1

test-fuzz: ## Run each fuzz target for FUZZ_SECONDS (10) seconds
	@command -v c++ > /dev/null || { echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2; exit 1; }
	RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --profile fuzz --locked -p sumlink-fuzz --bins --target $(HOST)
	@for source in fuzz/fuzz_targets/*.rs; do \
		name=$$(basename $$source .rs); \
		mkdir -p fuzz/corpus/$$name fuzz/artifacts; \
		echo "fuzz target $$name: $(FUZZ_SECONDS) s"; \
		$(TARGET_DIR)/$(HOST)/fuzz/$$name -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
			-rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=fuzz/artifacts/$$name- fuzz/corpus/$$name fuzz/seeds/$$name; \
	done

lint: ## Check formatting, clippy, documentation, licenses and purity of the core
	scripts/setup.sh lint
	@$(TIMED) --start
	$(TIMED) format $(MAKE) lint-format
	$(TIMED) clippy $(MAKE) lint-clippy
	$(TIMED) rustdoc $(MAKE) lint-doc
	$(TIMED) "core for wasm32" $(MAKE) lint-wasm
	$(TIMED) "licenses" $(MAKE) lint-deny
	@$(TIMED) --table

lint-format:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path peers/noq/Cargo.toml --check

lint-clippy:
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings

lint-doc:
	python3 scripts/doc_links.py
	python3 scripts/circles.py
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features --locked

# The crates of the core use no sockets, clocks or threads; a target without them proves it.
lint-wasm:
	@libdir=$$(rustc --print target-libdir --target wasm32-unknown-unknown); \
	if [ ! -d "$$libdir" ]; then \
		if ! command -v rustup > /dev/null; then \
			echo "the target wasm32-unknown-unknown is missing, and so is rustup;" \
				"install the target with your distribution (Debian: libstd-rust-dev-wasm32)" >&2; \
			exit 1; \
		fi; \
		echo "installing the target wasm32-unknown-unknown"; \
		rustup target add wasm32-unknown-unknown; \
	fi
	$(CARGO) check --locked -p sumlink-engine -p sumlink-schedulers -p sumlink-bond -p sumlink-link \
		-p sumlink-congestion -p sumlink-edge -p sumlink-mmwave --target wasm32-unknown-unknown

lint-deny:
	@deny=$$(scripts/tool.sh cargo-deny); \
	$$deny --version; \
	$$deny --all-features --locked check --hide-inclusion-graph bans licenses sources; \
	if timeout 120 $$deny fetch db index 2> /dev/null; then \
		$$deny --all-features --locked check --disable-fetch advisories; \
	else \
		echo "advisories: NOT checked, the advisory database is unreachable"; \
	fi

clean: ## Remove all build results
	$(CARGO) clean
	rm -rf dist demo-out lab-out fuzz/target fuzz/artifacts

help: ## Print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14
