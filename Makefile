# Everything that is done with a checkout. `make help` lists the targets.
#
# The environment is .venv/ in the checkout. Two files say how far the set-up is, so that a second run does nothing:
#   .venv/.packages                  written after the Python packages, older than pyproject.toml when they must move
#   lance_io/_kernels.abi3.so        the compiled kernels, older than kernels/src when they must be built again
# A third is made where there is a JDK: lance_io/spark/lance_io.jar, from jvm/.
# The proxy of the benchmark under latency is a program of its own, built where Cargo puts it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

export PYTHON
BIN := .venv/bin
PY := $(BIN)/python
SPARK_RELEASE ?= 4.1
SPARK_MIN := .venv-spark-$(SPARK_RELEASE)
KERNELS := lance_io/_kernels.abi3.so
SPARK_JAR := lance_io/spark/lance_io.jar
SPARK_JAR_SOURCES := $(shell find jvm jvm_later -name '*.java') scripts/spark_jar.py
KERNEL_SOURCES := $(shell find kernels/src -name '*.rs') kernels/Cargo.toml kernels/Cargo.lock
PROXY_FOLDER := benchmarks/latency/proxy
PROXY := $(PROXY_FOLDER)/target/release/latency-proxy
PROXY_SOURCES := $(shell find $(PROXY_FOLDER)/src -name '*.rs') $(PROXY_FOLDER)/Cargo.toml $(PROXY_FOLDER)/Cargo.lock

# Test processes, and whatever else pytest shall be told: make test ARGS="tests/store -k range"
WORKERS ?= 2
ARGS ?=

export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv

##@ Use it

.PHONY: demo
demo: setup ## write a table, open it, scan, take, filter, change it, and see what that costs
	@$(PY) examples/demo.py

.PHONY: pipeline
pipeline: need-java need-minio setup minio ## Parquet, PySpark, a table in a bucket, an HTTP service: all at once
	@$(PY) examples/pipeline $(ARGS)

.PHONY: bench
bench: need-java need-minio setup minio $(PROXY) ## compare with pylance and Parquet, on local disk and, in short, on a bucket
	@# As pip does with what it installs; Python may be told not to, and every new process would compile it all.
	@$(PY) -m compileall -q lance_io pyspark_lance_io
	@$(PY) benchmarks/run.py $(ARGS)
ifeq ($(strip $(ARGS)),)
	@$(PY) -m benchmarks.latency --reduced
endif

.PHONY: bench-latency
bench-latency: need-servers setup servers $(PROXY) ## compare with pylance on a bucket, with latency added by a proxy
	@$(PY) -m compileall -q lance_io
	@$(PY) -m benchmarks.latency $(ARGS)

.PHONY: wheel
wheel: need-jdk setup $(SPARK_JAR) ## build the wheel into dist/
	@maturin build --release --locked --out dist
	@ls -lh dist/*.whl

##@ Work on it

.PHONY: setup
setup: need-build .venv/.packages $(KERNELS) ## .venv/ with all that a developer needs, kernels compiled, Spark's JAR
	@if scripts/require jdk 2>/dev/null; then $(MAKE) --no-print-directory $(SPARK_JAR); \
	else echo "without a JDK (javac) there is no $(SPARK_JAR): Spark reads by the source in Python only"; fi

.PHONY: spark-jar
spark-jar: need-jdk $(SPARK_JAR) ## compile the JAR that Spark loads

.PHONY: test
test: need-tests setup ## every test, with real servers that it starts itself; ARGS="tests/X" needs the tools of X only
	@needs=" $(TEST_NEEDS) "; \
	for server in minio versity gcs azure; do \
	    [[ "$$needs" != *" $$server "* && "$$needs" != *" servers "* ]] || $(PY) -m servers $$server --build-only; \
	done; \
	[[ "$$needs" != *" proxy "* ]] || $(MAKE) --no-print-directory latency-proxy
	@# As `bench` does: tests start some thousands of processes, and Python may be told not to keep what it compiles.
	@$(PY) -m compileall -q lance_io pyspark_lance_io tests
	@TMPDIR=$$(scripts/test-folder) $(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

# What decodes, plans and moves bytes, by itself: no server, Java, Go or Node.
UNIT := $(addprefix tests/,format levels encodings kernels table filters io plans file)
.PHONY: unit
unit: setup ## the tests of the inner rooms, two minutes at most: no server, no Java, no Go, no Node
	@TMPDIR=$$(scripts/test-folder) $(PY) -m pytest -q -n $(WORKERS) --dist loadfile \
	    -m "not slow and not server and not spark" $(UNIT) $(ARGS)

.PHONY: slow-tests
slow-tests: setup ## measure the tests of `make unit` and write the list of slow ones
	@TMPDIR=$$(scripts/test-folder) $(PY) scripts/slow_tests.py -m "not server and not spark" $(UNIT)

.PHONY: tests-of
tests-of: ## the test files of a module, nearest first: make tests-of FILE=lance_io/io/cache.py
	@"$$(scripts/find-python)" scripts/find_tests.py of "$(FILE)"

.PHONY: test-servers
test-servers: need-all-servers setup servers $(PROXY) ## the tests that need a server, Spark's not
	@TMPDIR=$$(scripts/test-folder) $(PY) -m pytest -n $(WORKERS) --dist loadfile -m "server and not spark" $(ARGS)

# Where every draw begins: make campaign SEED=20261124. The date by default. ARGS="orders mutants" are some of them.
SEED ?=
.PHONY: campaign
campaign: need-all setup servers ## all tests at full size and mutants of the code, some hours; writes docs/campaigns.md
	@SEED=$(SEED) $(PY) scripts/campaign.py $(ARGS)

.PHONY: conformance
conformance: need-all setup servers ## the suite and the faults on all stores, some minutes; writes docs/conformance.md
	@$(PY) scripts/conformance.py

.PHONY: compatibility
compatibility: setup ## try file versions, releases and feature flags, some seconds; writes docs/compatibility.md
	@$(PY) scripts/compatibility.py $(ARGS)

.PHONY: doc-tests
doc-tests: ## list the tests that the user pages name in comments; writes docs/tests-of-pages.md
	@"$$(scripts/find-python)" scripts/doc_tests.py $(ARGS)

# Another release by SPARK_RELEASE=4.2. pyspark 4.1 leaves a socket open at every `collect`.
SPARK_MIN_WARNINGS := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
.PHONY: test-spark-min
test-spark-min: need-all setup servers $(SPARK_MIN)/.packages ## the Spark tests with the oldest pyspark, or SPARK_RELEASE=4.2
	@$(SPARK_MIN)/bin/python scripts/spark_jar.py --check
	@TMPDIR=$$(scripts/test-folder) PYTHONPATH=. $(SPARK_MIN)/bin/python -m pytest $(SPARK_MIN_WARNINGS) tests/spark $(ARGS)

.PHONY: check
check: need-build need-rust-tools setup ## format, lint, words, types, import layers, generated code, Rust
	@# Types, by one process, take as long as the others together.
	@$(MAKE) --no-print-directory check-types & types=$$!; status=0; \
	$(MAKE) --no-print-directory --keep-going $(CHECKS) || status=$$?; wait $$types || status=$$?; exit $$status

CHECKS := check-format check-lint check-words check-layers check-protos check-rustfmt check-clippy check-proxy
.PHONY: check-types $(CHECKS)
check-format:
	@ruff format --check
check-lint:
	@ruff check
check-words:
	@$(PY) scripts/plain_words.py
check-types:
	@mypy
check-layers:
	@lint-imports --no-logo
check-protos:
	@$(PY) scripts/generate_protos.py --check
check-rustfmt:
	@cargo fmt --manifest-path kernels/Cargo.toml --check
	@cargo fmt --manifest-path $(PROXY_FOLDER)/Cargo.toml --check
check-clippy:
	@cargo clippy --quiet --locked --manifest-path kernels/Cargo.toml --all-targets -- -D warnings
check-proxy:
	@cargo clippy --quiet --release --locked --manifest-path $(PROXY_FOLDER)/Cargo.toml --all-targets -- -D warnings
	@cargo test --quiet --release --locked --manifest-path $(PROXY_FOLDER)/Cargo.toml

.PHONY: format
format: setup ## bring Python and Rust into shape
	@ruff format
	@ruff check --fix
	@cargo fmt --manifest-path kernels/Cargo.toml
	@cargo fmt --manifest-path $(PROXY_FOLDER)/Cargo.toml

.PHONY: protos
protos: setup ## generate lance_io/proto/ from protos/
	@$(PY) scripts/generate_protos.py

.PHONY: minio
minio: need-minio setup ## make sure that there is a MinIO server to start (Go builds it once, into the user's cache)
	@$(PY) -m servers minio --build-only

.PHONY: servers
servers: need-servers setup ## the same for all servers of the tests: MinIO, versitygw, fake-gcs-server, Azurite
	@$(PY) -m servers --build-only

.PHONY: latency-proxy
latency-proxy: need-build $(PROXY) ## build the proxy of the benchmark under latency, which its tests need, too

.PHONY: clean
clean: ## remove what was built; the servers in the user's cache stay
	@rm -rf .venv dist build kernels/target $(PROXY_FOLDER)/target lance_io/_kernels*.so $(SPARK_JAR)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find lance_io tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Below: how the set-up is made.

# What the tests of ARGS need; asked for once, when a recipe first uses it.
TEST_NEEDS = $(eval TEST_NEEDS := $(shell python=$$(scripts/find-python) && "$$python" scripts/find_tests.py needs $(ARGS)))$(TEST_NEEDS)

.PHONY: need-build need-jdk need-rust-tools need-minio need-servers need-java need-all-servers need-all need-tests
need-build:
	@scripts/require python cargo cc
need-jdk:
	@scripts/require jdk
need-rust-tools:
	@scripts/require rust-tools
need-minio:
	@scripts/require python cargo cc minio
need-servers:
	@scripts/require python cargo cc servers
need-java:
	@scripts/require java jdk
need-all-servers:
	@scripts/require python cargo cc servers dynamodb
need-all:
	@scripts/require python cargo cc servers dynamodb java jdk strace disk
need-tests:
	@scripts/require python
	@test -n "$(TEST_NEEDS)" # else the reason stands above
	@scripts/require $(filter-out proxy,$(TEST_NEEDS))

$(PY): | need-build
	@echo "making .venv with $$(scripts/find-python)"
	@"$$(scripts/find-python)" -m venv .venv

.venv/.packages: pyproject.toml | $(PY)
	@test -x $(BIN)/uv || $(PY) -m pip install --quiet 'uv>=0.8'
	@# Compiled at once, as pip does it: Python may be told not to, and every new process would compile all that it imports.
	@uv pip install --quiet --compile-bytecode --python $(PY) --group dev
	@touch $@

$(SPARK_MIN)/.packages: pyproject.toml .venv/.packages
	@$(PY) -m venv --clear $(SPARK_MIN)
	@echo 'pyspark==$(SPARK_RELEASE).*' >$(SPARK_MIN)/override.txt
	@uv pip install --quiet --compile-bytecode --python $(SPARK_MIN)/bin/python --group dev --override $(SPARK_MIN)/override.txt
	@touch $@

$(KERNELS): $(KERNEL_SOURCES) .venv/.packages
	@maturin develop --release --locked --uv
	@touch $@

$(SPARK_JAR): $(SPARK_JAR_SOURCES) pyproject.toml .venv/.packages
	@$(PY) scripts/spark_jar.py

$(PROXY): $(PROXY_SOURCES)
	@cargo build --quiet --release --locked --manifest-path $(PROXY_FOLDER)/Cargo.toml
	@touch $@
