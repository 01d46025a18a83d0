# The door: every target is a short script in tools/. `make` alone lists them.
#
# Nothing is written outside the project but system packages (and what `make install` puts under PREFIX).

PREFIX ?= /usr/local
export JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export TORCH TORCH_INDEX MINDSPORE

PARTS := unit cli python mindspore web asan tsan fuzz format symbols aarch64 avx512 torch113

.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench bench-peers install format clean $(PARTS:%=test-%)

help: ## list the targets
	@tools/help $(MAKEFILE_LIST)

demo: build ## train twice, one run with a planted fault, and let `msprobe compare` name it
	@tools/demo

test: ## set up, build and run every test (minutes); the last lines say how many ran and what failed
	@tools/setup test pytest mindspore web
	@tools/build
	@tools/run-tests

build: ## build the release library, the command and the Python packages, and install them into .venv
	@tools/setup python
	@tools/build

bench: ## run the benchmarks: measured ratios beside their targets
	@tools/setup pytest mindspore
	@tools/build
	@tools/bench

bench-peers: build ## the collector beside mindstudio-probe 8.3.3 and 26.2.0, which go into environments of their own
	@tools/bench-peers

install: ## install library, headers, command, man page and completions under PREFIX (default /usr/local)
	@tools/setup build
	@tools/install "$(PREFIX)"

setup: ## only get what the other targets need: system packages, .venv, PyTorch
	@tools/setup test pytest

format: ## reformat the C sources with clang-format
	@tools/setup test
	@tools/format

clean: ## remove everything that was built (build/, .venv/ and .venv-mindspore/)
	rm -rf build .venv .venv-mindspore dist

test-unit: ## unit tests, release and debug build
test-cli: ## the command's recorded output, messages and exit codes
test-python: ## Python tests
test-mindspore: ## collecting from MindSpore (MINDSPORE=2.7.0 takes another release than 2.10.0)
test-web: ## the report page in Chromium, and its bundle
test-asan: ## unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
test-tsan: ## unit tests under ThreadSanitizer
test-fuzz: ## every fuzz corpus, replayed under the address sanitizer
test-format: ## are the C sources formatted as .clang-format says?
test-symbols: ## does every global symbol carry the msp_ prefix?
test-aarch64: ## unit tests cross-compiled for aarch64, run under qemu (not part of `make test`)
test-avx512: ## unit tests with the AVX-512 kernels as plain C, for machines without it (not part of `make test`)
test-torch113: ## Python tests with Debian's PyTorch 1.13 (not part of `make test`)

test-unit test-asan test-tsan test-fuzz test-format test-symbols:
	@tools/setup test
	@tools/run-tests $(@:test-%=%)

test-web:
	@tools/setup pytest web
	@tools/build
	@tools/run-tests web

test-aarch64 test-avx512 test-torch113:
	@tools/setup $(@:test-%=%)
	@tools/run-tests $(@:test-%=%)

test-cli test-python:
	@tools/setup pytest
	@tools/build
	@tools/run-tests $(@:test-%=%)

test-mindspore:
	@tools/setup pytest mindspore
	@tools/build
	@tools/run-tests mindspore
