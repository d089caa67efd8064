# Everything here works on a machine with Python >= 3.11 (with its headers and venv), gcc and make.
# The virtual environment .venv is made when first needed, and the package installed into it in
# editable mode: changed Python files count at once, changed native sources are compiled by the next make.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; exit; }; done; echo none)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --no-input
# A second environment, make VENV=..., has a build folder of its own.
INSTALL := $(PIP) install --no-build-isolation $(if $(filter-out .venv,$(VENV)),-C build-dir=build/$(VENV)) --editable
CYTHON := $(shell find cython -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi')
NATIVE := $(CYTHON) $(shell find cython -name '*.[ch]')
SANITIZERS ?= thread address
ARGS ?=
# Processes that share the tests, file by file, the longest first (tests/conftest.py). One where there is a GPU, which the tests fill, break and measure; more
# than four only wait for each other.
JOBS ?= $(if $(wildcard /dev/nvidia0),1,$(shell n=$$(nproc) && echo $$((n < 4 ? n : 4))))
PYTEST = $(BIN)/python -m pytest -q $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadfile --no-loadscope-reorder)
# The arithmetic of older processors: NumPy without AVX-512 or AVX2, and OpenBLAS with FMA by two threads, or without
# by one.
# NumPy warns of names that it does not have.
AVX512 := X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512_SKX
WITH_AVX2 := NPY_DISABLE_CPU_FEATURES='$(AVX512)' OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=2
WITH_SSE := NPY_DISABLE_CPU_FEATURES='$(AVX512) X86_V3 AVX2 FMA3' OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=1
BITS = $(PYTEST) -W 'ignore:During parsing environment variable' -m 'bits and not slow' $(call MARKED,bits) $(ARGS)
# Files with tests of a mark. To collect all tests takes as long as to run some.
MARKED = $(shell grep -rlE 'mark\.$(1)\b' --include='test_*.py' tests)
# As atomr_native/_support/ray_version.py has it.
OLDEST_RAY := ray==2.55.0
KILLS ?= 50
# More extras of the package for the virtual environment, as in: make test EXTRAS=cu13
EXTRAS ?=
comma := ,
HAS_DEV = $(filter 2,$(words $(filter dev docs,$(subst $(comma), ,$(EXTRAS)))))

# Build tools of the virtual environment (cmake, ninja, cython) come before the machine's.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: FORCE help demo test test-all test-plain test-bits test-kernels test-ray test-ray-services test-sanitized rewritten extras site check-site
.PHONY: array-api chaos mutation bench doctor lint format tables typecheck sanitize dist clean install check-machine
.PHONY: $(SANITIZERS:%=sanitize-%)

help:
	@echo 'make demo       train a network by messages, kill its worker half-way, continue'
	@echo 'make test       run the tests (test-all: the slow ones too), in JOBS=$(JOBS) processes'
	@echo 'make test-plain those marked plain, and one of each other file: for a machine without NVIDIA'"'"'s packages'
	@echo 'make test-bits  those that compare to the last place, with the arithmetic of older processors'
	@echo 'make test-kernels every family of kernels of CUTLASS compiles (EXTRAS=test-cuda); for the night'
	@echo 'make test-ray   clusters on the oldest Ray and on the newest, with KILLS=$(KILLS)'
	@echo 'make test-sanitized the tests on modules compiled with AddressSanitizer'
	@echo 'make test-ray-services  a cluster inside of Ray Serve and Ray Train, whose packages are large'
	@echo 'make doctor     check this machine'
	@echo 'make lint | format | typecheck | sanitize'
	@echo 'make bench | chaos | mutation'
	@echo 'make array-api  fetch array-api-tests, the test suite of the array API standard, and run it'
	@echo 'make tables     write the tables of NVIDIA'"'"'s libraries from its headers, which EXTRAS=test-cuda brings'
	@echo 'make dist       build sdist and wheel into dist/'
	@echo 'make site       build the documentation into build/site/ (check-site: only look for references to nothing)'
	@echo 'make extras     install each extra into a fresh environment and use it there (EXTRA=kernels: only this one)'
	@echo 'make clean      remove everything that was built, .venv too'
	@echo "NVIDIA's libraries as wheels: EXTRAS=cu13 (or cu12), as in: make test EXTRAS=cu13"
	@echo "Options for the program that is run go into ARGS, as in: make test ARGS='-k dlpack'"

demo: $(VENV)/.installed
	@$(BIN)/python -m atomr_native demo $(ARGS)

doctor: $(VENV)/.installed
	@$(BIN)/python -m atomr_native doctor $(ARGS)

test: $(VENV)/.installed
	@$(PYTEST) -m 'not slow' $(ARGS)

test-all: $(VENV)/.installed
	@$(PYTEST) $(ARGS)

test-plain: $(VENV)/.installed
	@$(PYTEST) --one-each -m 'not slow and not gpu' $(ARGS)

# Some minutes of every processor, and nvidia-cutlass, which EXTRAS=test-cuda brings.
test-kernels: $(VENV)/.installed
	@$(PYTEST) -m 'slow and not gpu' tests/compile/test_cutlass_toolchain.py $(ARGS)

# Pytest rewrites the asserts of each file and keeps the result; processes that start together would all do it. Its
# errors show again in the run.
rewritten: $(VENV)/.installed
	@$(BIN)/python -m pytest -q --collect-only >/dev/null || true

test-bits: $(VENV)/.installed
	@$(WITH_AVX2) $(BITS)
	@$(WITH_SSE) $(BITS)

# The oldest Ray that clusters work with, and the newest, each in a folder of its own: a short run with the first, and so
# many kills with the other.
RAYS := build/ray/oldest build/ray/newest
build/ray/oldest/.there: RAY := $(OLDEST_RAY)
build/ray/newest/.there: RAY := ray
build/ray/services/.there: RAY := ray[serve,train]
build/ray/%/.there: pyproject.toml | $(VENV)/.installed
	@rm -rf $(@D)
	@$(PIP) install --target $(@D) '$(RAY)'
	@touch $@

test-ray: $(RAYS:%=%/.there)
	@PYTHONPATH=$(CURDIR)/build/ray/oldest $(BIN)/python -m pytest -q tests/ray/test_on_ray.py $(ARGS)
	@ATOMR_NATIVE_RAY_KILLS=$(KILLS) PYTHONPATH=$(CURDIR)/build/ray/newest $(BIN)/python -m pytest -q tests/ray/test_on_ray.py $(ARGS)

test-ray-services: build/ray/services/.there
	@PYTHONPATH=$(CURDIR)/build/ray/services $(BIN)/python -m pytest -q tests/ray/test_on_ray.py -k serve $(ARGS)

# In an environment of their own, since the modules that Cython compiles are instrumented. ASan looks for C++ exceptions
# when it starts, and faults stay the tests' own. A worker's report fails the run, too, which a test may take for a death.
# Left out: tests that load cuRAND with RTLD_DEEPBIND, which ASan refuses, and cuDNN, which it does not survive.
ASAN := -fsanitize=address -fno-omit-frame-pointer -g -O1
NOT_SANITIZED := --ignore tests/libraries/random/test_curand_engines.py \
	--deselect tests/libraries/cudnn/test_cudnn.py::test_every_function_is_exported
REPORTS := $(CURDIR)/build/sanitized
test-sanitized:
	@CFLAGS='$(ASAN)' LDFLAGS='$(ASAN)' $(MAKE) --no-print-directory install VENV=.venv-sanitized
	@rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
		ASAN_OPTIONS=abort_on_error=1:detect_leaks=0:handle_segv=0:quarantine_size_mb=64:log_path=$(REPORTS)/report \
		$(subst $(BIN),.venv-sanitized/bin,$(PYTEST)) -m 'not slow' $(NOT_SANITIZED) $(ARGS); status=$$?; \
		! grep -rl 'ERROR: AddressSanitizer' $(REPORTS) && exit $$status

array-api: $(VENV)/.installed
	@DEVICE=$(or $(DEVICE),host) $(BIN)/python tests/array_api/suite.py $(ARGS)

chaos: $(VENV)/.installed
	@ATOMR_NATIVE_CHAOS=long $(BIN)/python -m pytest -q -m chaos --timeout=0 $(ARGS)

mutation: $(VENV)/.installed
	@$(BIN)/python tests/mutation/mutate.py $(ARGS)

bench: $(VENV)/.bench
	@$(BIN)/python -m bench $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-cache >$(VENV)/.imports 2>&1 || { cat $(VENV)/.imports; exit 1; }
	@find atomr_native -name '*.py' -exec awk 'END { if (NR > 500) \
		print "lint: warning: " FILENAME " has " NR " lines; CONTRIBUTING asks for about 500" }' {} \;
	@$(BIN)/cython-lint $(CYTHON)
	@$(BIN)/codespell
	@echo 'lint: clean'

format: $(VENV)/.dev
	@$(BIN)/python tests/helpers/typed_names.py
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

# Not after a compilation, which a new library's table has to precede.
tables: $(if $(wildcard $(VENV)/.installed),,$(VENV)/.installed)
	@$(BIN)/python tests/helpers/native_tables.py

typecheck: $(VENV)/.dev
	@$(BIN)/mypy

# The native core's own tests, in C and without Python: under ThreadSanitizer, and under AddressSanitizer together with
# UndefinedBehaviorSanitizer.
sanitize: $(SANITIZERS:%=sanitize-%)

$(SANITIZERS:%=sanitize-%): sanitize-%:
	@$(MAKE) --no-print-directory --silent -C tests/native check SAN=$*

dist: $(VENV)/.dev
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist >/dev/null
	@ls dist

# Needs the package index, minutes, and gigabytes meanwhile.
extras: $(VENV)/.tools
	@$(BIN)/python tests/helpers/fresh_extras.py $(EXTRA)

# Docstrings are read from the installed package.  Nothing is downloaded, and a warning is an error.
SPHINX = $(BIN)/python -m sphinx -W --keep-going --quiet -j auto -c docs

site: $(VENV)/.dev
	@$(SPHINX) -b html . build/site
	@echo 'site: build/site/index.html'

# Without the pages, which are a third of the time.
check-site: $(VENV)/.dev
	@$(SPHINX) -b dummy . build/check-site
	@echo 'check-site: every reference leads somewhere'

clean:
	rm -rf build dist $(VENV) .venv-plain .venv-sanitized .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/native/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

install: $(VENV)/.installed

check-machine:
	@test '$(PYTHON)' != none || { \
		echo 'atomr_native needs Python 3.11 or newer, as python3 on PATH or as make PYTHON=/path/to/python3.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null || { \
		echo '$(PYTHON) is no Python 3.11 or newer.' >&2; exit 1; }
	@missing=; \
	$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
		|| missing="$$missing python3-dev"; \
	command -v cc >/dev/null || command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; \
	test -z "$$missing" || { \
		echo "Missing on this machine:$$missing. On Debian and Ubuntu: apt-get install$$missing" >&2; exit 1; }

$(VENV)/.created:
	@$(MAKE) --no-print-directory check-machine
	@echo 'Making the virtual environment $(VENV) ...'
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.tools: pyproject.toml | $(VENV)/.created
	@echo 'Installing build tools into $(VENV) ...'
	@$(PIP) install 'scikit-build-core>=0.11' 'cython>=3.1,<4' 'cmake>=3.25' ninja
	@touch $@

# Touched when the extras change, so that they are installed then.
$(VENV)/.extras: FORCE | $(VENV)/.created
	@printf '%s' '$(EXTRAS)' | cmp -s - $@ || printf '%s' '$(EXTRAS)' > $@

FORCE:

$(VENV)/.installed: $(VENV)/.tools $(VENV)/.extras pyproject.toml CMakeLists.txt Makefile $(NATIVE)
	@echo 'Compiling atomr_native and installing it into $(VENV) ...'
	@$(INSTALL) '.[demo,test$(addprefix $(comma),$(EXTRAS))]'
	@touch $@

# Nothing is left to do where EXTRAS=dev,docs had them installed with the package.
$(VENV)/.dev: $(VENV)/.installed
	@$(if $(HAS_DEV),:,echo 'Installing development tools into $(VENV) ...')
	@$(if $(HAS_DEV),:,$(INSTALL) '.[dev,docs]')
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@echo 'Installing the libraries that the benchmarks compare with into $(VENV) ...'
	@$(INSTALL) '.[bench]'
	@touch $@
