# The short names for what one does here. `make` alone lists them; `make test` is the gate.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
MSRV := $(shell sed -nE 's/^rust-version = "(.*)"/\1/p' Cargo.toml)
PAGES := $(CURDIR)/target/html
DECODER := cases/upstream-index-decoder/build/decoder-clang

# A tool that is optional: $(call optional,cargo subcommand,what is skipped,command)
optional = if $(CARGO) $(1) --version >/dev/null 2>&1; then $(3); else \
	echo "SKIPPED: $(2): cargo-$(1) is not installed (cargo install cargo-$(1))" >&2; fi

.PHONY: help
help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: setup
setup: ## Install what building and the demo need: toolchain, two versions of clang, crates
	@scripts/setup

.PHONY: setup-test
setup-test: setup ## Install what tests need beside that
	@scripts/setup-test

.PHONY: cases
cases: setup-test ## Build the programs of all cases
	@for script in cases/*/build.sh; do "$$script"; done

.PHONY: test
test: cases ## The gate: format, lints, tests, pages in a browser, documentation, generated files
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@rm -rf $(PAGES) && mkdir -p $(PAGES)
	STALLSCOPE_PAGES=$(PAGES) $(CARGO) test --workspace --locked --no-fail-fast
	scripts/test-html $(PAGES)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) xtask check

.PHONY: test-html
test-html: ## That part of the gate which opens pages in a headless Chromium; screenshots (needs python3, chromium)
	@rm -rf $(PAGES) && mkdir -p $(PAGES)
	STALLSCOPE_PAGES=$(PAGES) $(CARGO) test --locked --quiet -p stallscope --lib report::page
	scripts/test-html $(PAGES)

.PHONY: book
book: ## All pages as one book in target/book/book (needs mdbook)
	$(CARGO) xtask book
	@mdbook --version >/dev/null 2>&1 || { echo "mdbook is not installed (cargo install mdbook)" >&2; exit 2; }
	mdbook build target/book

.PHONY: build
build: setup ## Build target/release/stallscope
	$(CARGO) build --release --locked --package stallscope-cli

.PHONY: demo
demo: build ## Price a mechanism here, then explain the first story; a few minutes from a clone
	@cases/upstream-index-decoder/build.sh
	target/release/stallscope probe --quiet store-forwarding data-caches
	target/release/stallscope explain $(DECODER)-19 $(DECODER)-16 \
		--source-root $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src -- strips

.PHONY: test-fleet
test-fleet: build ## A sweep on a real Slurm and a real sshd on this host, while workers are killed and nodes drained (root)
	@scripts/test-fleet target/release/stallscope

.PHONY: simulate-fleet
simulate-fleet: ## Ten thousand invented machines, a million blocks: what collect takes, how often intervals are right
	$(CARGO) run --release --locked -p xtask -- simulate-fleet

.PHONY: bench-aa
bench-aa: build cases ## How often do comparisons of a program with itself cry wolf?
	PAIRS=40 scripts/bench-aa $(DECODER)-19 strips

.PHONY: bench-verdict
bench-verdict: ## Error rates of verdicts on simulated machines, one layout and many
	$(CARGO) test --release --locked -p stallscope --test statistics -- --nocapture --test-threads 1
	STALLSCOPE_REPLICATIONS=$(or $(REPLICATIONS),1000) \
		$(CARGO) test --release --locked -p stallscope --test layouts -- --nocapture --test-threads 1
	STALLSCOPE_REPLICATIONS=500 \
		$(CARGO) test --release --locked -p stallscope --test histories -- --nocapture --test-threads 1

.PHONY: bench-layouts
bench-layouts: ## Ensembles of layouts of a real Go program: equal stays equal, 3 % is seen (needs go)
	@scripts/bench-layouts

.PHONY: bench-compare-peer
bench-compare-peer: ## A true 1 % of a compile in a minute, beside hyperfine (TRIES, SECONDS_EACH)
	@scripts/bench-compare-peer

.PHONY: bench-probe-peer
bench-probe-peer: build ## Our store forwarding beside other suites' (CLAMCHOWDER=PATH, UARCH_BENCH=PATH)
	@scripts/bench-probe-peer

.PHONY: bench-probe-truth
bench-probe-truth: build ## Are the classes of store forwarding, and all facts of all probes, right beside busy loops? (RUNS)
	$(CARGO) xtask probe-truth target/release/stallscope --runs $(or $(RUNS),10)

.PHONY: bench-layout
bench-layout: build cases ## perf script | gawk | sort | uniq | python against layout, on one recording
	@scripts/bench-layout

.PHONY: bench-index-codec
bench-index-codec: ## Our triangle codec against meshoptimizer's (clang 19, gcc 12, npm for a model)
	@cases/index-codec/bench/build.sh
	@$(or $(BENCH_PIN),taskset -c 1) cases/index-codec/bench/target/release/index-codec-bench \
		$$(cases/index-codec/bench/model.sh)

.PHONY: bench-explain-truth
bench-explain-truth: build ## Pairs with a known cause, and pairs that must not differ: what explain says of each
	@scripts/bench-explain-truth target/release/stallscope

.PHONY: bench-core-model
bench-core-model: build ## Cycles an instruction by the model and by the clock: kernels, loops, programs (ONLY; gcc, python3)
	@scripts/bench-core-model target/release/stallscope --only "$(ONLY)"

.PHONY: bench-gallery
bench-gallery: build ## The famous questions and their traps: is what is planted named, and nothing else? (ONLY)
	@scripts/bench-gallery target/release/stallscope --only "$(ONLY)"

.PHONY: bench-gate
bench-gate: ## The gate ten times (TRIES) on a busy machine, on a clone of HEAD
	@scripts/bench-gate

.PHONY: bench-anything
bench-anything: build ## Fifteen ordinary ways to run programs: each is explained, or refused with one sentence
	@scripts/bench-anything target/release/stallscope

.PHONY: bench-foreign
bench-foreign: build ## Programs of others, alone and traced: the same output, nothing wrongly said, nothing left (RUNS, ONLY)
	@scripts/bench-foreign

.PHONY: bench-trace
bench-trace: ## Instructions a second that tracing follows, beside valgrind's tools
	@scripts/bench-trace

.PHONY: bench-l1i
bench-l1i: ## Misses of the instruction cache model beside those of cachegrind, on whole runs
	@scripts/bench-l1i

.PHONY: bench-price
bench-price: build ## Is what a blocked load costs as the law says? The decoder with its load whole and split
	@scripts/bench-price

.PHONY: bench-scan
bench-scan: build ## How much faster than objdump -d is scan, on libLLVM 16 and on a kernel image?
	@scripts/bench-scan target/release/stallscope

.PHONY: bench-hostile
bench-hostile: build ## Hostile files: 2 s and 256 MB each; 300 random kills (KILLS): nothing is left (needs python3)
	@scripts/bench-hostile target/release/stallscope --kills $(or $(KILLS),300)

.PHONY: bench-truth-scan
bench-truth-scan: ## Recall and false alarms of store-forward, on executed functions (ten compilers and more)
	STALLSCOPE_CORPUS=whole $(CARGO) test --release --locked -p stallscope --test scan_truth -- --nocapture

.PHONY: bench-scan-recall
bench-scan-recall: build ## Of the loads that are blocked in real programs, how many does scan name? (needs python3; valgrind)
	@scripts/bench-scan-recall target/release/stallscope < /dev/null

.PHONY: bench-scan-gate
bench-scan-gate: build ## Delete one object file or function of many programs: is anything new, does a gate fall? (python3, ld, ar)
	@scripts/bench-scan-gate target/release/stallscope

.PHONY: bless
bless: cases ## Accept the present output as the golden output
	INSTA_UPDATE=always TRYCMD=overwrite $(CARGO) test --workspace --locked
	$(CARGO) xtask generate

.PHONY: fuzz
fuzz: ## Feed each parser nonsense for a minute (SECONDS_EACH), 256 MB and 5 s an input (cargo-fuzz, nightly)
	@$(call optional,fuzz,fuzzing,for target in $$($(CARGO) fuzz list); do \
		$(CARGO) +nightly fuzz run --sanitizer none "$$target" -- -max_total_time=$(or $(SECONDS_EACH),60) \
			-rss_limit_mb=256 -timeout=5; done)

.PHONY: mutants
mutants: ## Change one operator, arm or answer of a room at a time: do tests notice? (ROOM, SHARD=k/n, ONLY; cargo-mutants)
	@scripts/mutants

.PHONY: miri
miri: ## Watch every access of the index codec's tests (nightly Rust with miri)
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
		$(CARGO) +nightly miri test --package index-codec --lib --test memory; \
	else echo "SKIPPED: miri: rustup +nightly component add miri rust-src" >&2; fi

.PHONY: deny
deny: ## Check licences and advisories of all crates (cargo-deny)
	@$(call optional,deny,licences and advisories,$(CARGO) deny check)

.PHONY: dist
dist: ## Write a static binary (musl), man pages, completions, its crates and checksums to target/dist, and try it
	@scripts/dist

.PHONY: package
package: ## Pack every published crate and build it from its package, as `cargo install` would
	$(CARGO) package --workspace --locked --exclude xtask --exclude index-codec --exclude index-codec-case

.PHONY: msrv
msrv: ## Check everything with the oldest Rust that Cargo.toml promises (rustup)
	$(CARGO) +$(MSRV) check --workspace --all-targets --locked --target-dir target/msrv

.PHONY: man
man: build ## Write man pages to target/dist/man
	@target/release/stallscope man --dir target/dist/man

.PHONY: completions
completions: build ## Write shell completions to target/dist/completions
	@mkdir -p target/dist/completions
	@target/release/stallscope completions bash >target/dist/completions/stallscope.bash
	@target/release/stallscope completions zsh >target/dist/completions/_stallscope
	@target/release/stallscope completions fish >target/dist/completions/stallscope.fish

.PHONY: clean
clean: ## Remove everything that was built, cases included
	$(CARGO) clean
	rm -rf cases/*/build cases/index-codec/bench/build cases/index-codec/bench/target
