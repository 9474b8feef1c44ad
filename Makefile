# onq's front door. `make` and `make install` build with what is there and change nothing else on the machine; `make setup`
# installs what is missing (tools/setup.sh), and so do demo, test, check and bench, saying what they install.
# Underneath is CMake: CMakeLists.txt and CMakePresets.json.

PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
TIME   ?= 300
export JOBS

SETUP := tools/setup.sh
BUILD := tools/build.sh
CTEST := ctest --parallel $(JOBS) --output-on-failure --no-tests=error

.DEFAULT_GOAL := all
.NOTPARALLEL:
.PHONY: all setup demo quick test check check-runtimes fuzz coverage bench bench-llm debug wheel wheels windows check-windows macos dist tarball deb packages install uninstall format \
        clean distclean help

all: ## build the release: build/onq, build/libonq.so, build/libonq.a
	@$(SETUP) --look build runtime
	@$(BUILD) release product

setup: ## install what building, running and testing need: Debian packages, ONNX Runtime, Python packages
	@$(SETUP) build mpi test pages venv runtime

demo: ## build, then show the main job on the bundled model
	@$(SETUP) build runtime
	@$(BUILD) release product
	@tools/demo.sh

quick: ## tests one runs while writing: no Python, no sanitizers
	@$(SETUP) --look build test
	@$(BUILD) release -DONQ_TESTS=ON
	@$(CTEST) --test-dir build -L quick

test: ## everything that must pass: quick, sanitizers, installation, parity with the reference, pages in a browser
	@$(SETUP) build mpi test pages venv runtime older
	@$(BUILD) release -DONQ_TESTS=ON -DONQ_WERROR=ON
	@$(BUILD) asan -DONQ_TESTS=ON
	@tools/test.sh build/all

check: ## test, and thread sanitizer, clang, lint, valgrind, fuzzing, coverage, aarch64, packages
	@$(SETUP) build mpi test pages venv runtime older check
	@tools/check.sh

check-runtimes: ## what --for_runtime writes, run in versions 1.19 to 1.31 of ONNX Runtime (fetches them)
	@$(SETUP) build runtime runtimes
	@$(BUILD) release product
	@tools/check-runtimes.sh

fuzz: ## libFuzzer on everything that reads bytes, TIME seconds over all targets
	@$(SETUP) build check
	@tools/fuzz.sh $(TIME)

coverage: ## which branches the tests take; those of codec, resolver, writer and option parser must be taken or explained
	@$(SETUP) build test check
	@tools/coverage.sh

bench: ## time and memory on fixed models, with the budgets asserted
	@$(SETUP) build mpi test bench venv runtime
	@$(BUILD) release product benches
	@bench/run.sh

bench-llm: ## the table of docs/guides/language_models.md; fetches a language model (ROWS: words of the rows that are wanted)
	@$(SETUP) build bench venv runtime
	@$(BUILD) release product benches
	@cd bench && ../build/venv/bin/python llm.py $(ROWS)

debug: ## an unoptimised build with asserts in build/debug
	@$(SETUP) --look build
	@$(BUILD) debug

wheel: ## the Python package with library and program inside, in build/dist (PORTABLE=1: for glibc 2.28 and later)
	@$(SETUP) --look build
	@tools/wheel.sh

windows: ## build/windows/onq.exe and onq.dll, built here for Windows on x86-64
	@$(SETUP) build package windows
	@tools/portable.sh windows

check-windows: all windows ## try them under wine against this machine's: bytes, paths, damaged models
	@$(SETUP) wine
	@tools/check-windows.sh

macos: ## build/macos/onq and libonq.dylib, linked here for macOS on Apple silicon
	@$(SETUP) build package macos
	@tools/portable.sh macos

wheels: ## the Python packages for Linux (x86-64, 64-bit Arm), Windows and macOS, and archives of the last two
	@$(SETUP) build package windows macos
	@tools/wheels.sh

dist: ## the source archive, in build/dist
	@tools/dist.sh

tarball: ## a binary archive for any Linux with glibc 2.28 or later, in build/dist (ARCH=aarch64 for that)
	@$(SETUP) build package runtime $(if $(filter-out $(shell uname -m),$(ARCH)),$(ARCH))
	@$(if $(filter-out $(shell uname -m),$(ARCH)),$(BUILD) release product)
	@tools/tarball.sh $(ARCH)

deb: ## Debian packages: onq, libonq-dev, onq-mpi, in build/dist
	@$(SETUP) build mpi package runtime
	@tools/deb.sh

packages: ## all of these, each tried in a clean Debian (as root)
	@$(SETUP) build mpi package venv runtime
	@tools/try-packages.sh

install: all ## install under PREFIX (default /usr/local)
	@tools/install.sh install "$(PREFIX)"

uninstall: ## take away what install put under PREFIX
	@tools/install.sh uninstall "$(PREFIX)"

format: ## clang-format the C sources in place
	@$(SETUP) check
	@tools/list-files.sh '*.c' '*.h' | xargs clang-format -i

clean: ## remove what was built; keeps build/venv and build/runtime
	@[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name venv ! -name runtime -exec rm -rf {} +

distclean: ## remove build/ whole
	@rm -rf build

help: ## this list
	@echo "make TARGET [PREFIX=DIR] [JOBS=N] [TIME=SECONDS]"
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r t h; do printf '  %-14s %s\n' "$$t" "$$h"; done
