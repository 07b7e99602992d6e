# Every Load Is Two Loads. `make` or `make help` says what there is.
#
# Everything runs from .venv, which is made once from requirements.lock (exact versions, checked by hash) and made
# again when that file changes. Nothing is installed outside this folder and nothing is read from HOME.
# All paths are relative, so a checkout may lie under a path with spaces.

PROFILE ?= quick
MINUTES ?=
MAX_WORKING_SET ?=
PYTHON ?=

VENV := .venv
READY := $(VENV)/.project-installed
RUN := $(VENV)/bin/python
TLB := $(VENV)/bin/tlb

# Two measurements at once would measure each other: `make -j` runs the targets one after the other.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help site book pdf release committed dist test check bench endurance mutation lint lock links clean
.DEFAULT_GOAL := help

# Jupyter and IPython keep their state here and not in HOME, which may be read-only or hold settings of its own.
export JUPYTER_CONFIG_DIR := $(CURDIR)/_build/jupyter/config
export JUPYTER_DATA_DIR := $(CURDIR)/_build/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/_build/jupyter/runtime
export JUPYTER_PREFER_ENV_PATH := 1
export IPYTHONDIR := $(CURDIR)/_build/jupyter/ipython
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some images forbid Python to keep what it compiles; then each of some hundred processes of a test run compiles anew.
export PYTHONDONTWRITEBYTECODE :=

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s  %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  make book MINUTES=40               stop after so long (default: when all is measured); the same command goes on'
	@echo '  make book PROFILE=full             smoke, quick (the default) or full: how fine, and how many processes a point'
	@echo '  make book MAX_WORKING_SET=4GiB     stop the sweep at this size'
	@echo '  make site PYTHON=/path/to/python3  make .venv with this Python (3.11 or newer)'

# IPython warns of a folder that it would have to make itself.
site book pdf release test check bench endurance: | _build/jupyter
_build/jupyter:
	@mkdir -p $@

site: $(READY) ## build the book from the committed results: no measuring, any OS
	$(TLB) site

book: export TLB_BOOK_PROFILE = $(PROFILE)
book: export TLB_BOOK_MINUTES = $(MINUTES)
book: export TLB_BOOK_LIMIT = $(MAX_WORKING_SET)
book: $(READY) ## measure this computer, then build the book about it
	@$(TLB) book --profile "$$TLB_BOOK_PROFILE" $${TLB_BOOK_MINUTES:+--minutes "$$TLB_BOOK_MINUTES"} $${TLB_BOOK_LIMIT:+-p "max_working_set=$$TLB_BOOK_LIMIT"}

pdf: $(READY) ## print the book of the committed results into _build/book.pdf, by Chromium
	$(RUN) -c 'from pathlib import Path; from tlb.report import publish; print(publish.pdf(Path("_build/book.pdf")))'

# Of one commit the same bytes each time: all files have its time. That the notebooks are what their code and rows give is for
# `make test`.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
NAME = every-load-is-two-loads-$(VERSION)
FILES = _build/release/$(NAME)
PACKED = tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@$$(git log -1 --format=%ct)
release: committed site ## notes, site, source and checksums of this version into _build/release, from a clean checkout
	rm -rf _build/release && mkdir -p $(FILES)
	sed -n '/^## \[$(VERSION)\]/,/^## /{/^## /d;p}' CHANGELOG.md > $(FILES)/NOTES.md
	@grep -q . $(FILES)/NOTES.md || { echo "CHANGELOG.md has no notes on $(VERSION), the version in pyproject.toml." >&2; exit 1; }
	git archive --prefix=$(NAME)/ HEAD | gzip -n -9 > $(FILES)/$(NAME)-source.tar.gz
	$(PACKED) --transform 's,^html,$(NAME)-site,' --directory _build/site/_build html | gzip -n -9 > $(FILES)/$(NAME)-site.tar.gz
	cd $(FILES) && sha256sum * > SHA256SUMS
	@echo $(FILES)

committed:
	@test -z "$$(git status --porcelain)" || { git status --short; echo "A release needs a commit: commit these changes first." >&2; exit 1; }

# The tools are not locked: a maintainer's, which no test and no reader needs.
dist: $(READY) ## wheels with compiled kernels, and the source archive, into dist/, by zig
	$(RUN) -m venv --clear _build/tools
	_build/tools/bin/python -m pip install --quiet ziglang==0.17.1 twine==7.0.0 check-wheel-contents==0.6.3
	$(RUN) .ci/dist.py _build/tools/bin/python
	_build/tools/bin/twine check --strict dist/*
	_build/tools/bin/check-wheel-contents dist/*.whl

# Two processes, since that is what the smallest machine has; what measures is one group, and the first (tests/conftest.py), so
# that no process waits for it at the end.
PYTEST := $(RUN) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 15
NBVAL := --nbval --nbval-current-env --nbval-kernel-startup-timeout 600 --nbval-sanitize-with tests/nbval_sanitize.cfg

# One pytest for the tests and for the chapters, so that one closing line counts both.
test: lint $(READY) ## lint, the tests, and every chapter against its committed outputs (under ten minutes on two cores)
	$(PYTEST) tests book $(NBVAL) -m "not endurance"

# The rooms that everything stands on, and the rules of the house; ALSO=tests/chapters/stlb_cliff adds what is worked on.
PURE := tests/system tests/machine tests/measure tests/project/test_house.py tests/stats/test_intervals.py tests/stats/test_steps.py
check: lint ## while working: lint, and pure tests, under a minute on two cores; ALSO=FOLDER for more
	$(PYTEST) $(PURE) $(ALSO) -m "not endurance and not measuring and not site and not slow"

bench: $(READY) ## print the figures that the project has to reach, as ratios measured now; TABLE=NAME for one
	$(RUN) -c 'import sys; from experiments import bench; bench.main(sys.argv[1:])' $(TABLE)

endurance: $(READY) ## recipes, kills, fuzz: what takes over 20 s and is no reader's path (a quarter of an hour)
	TLB_ENDURANCE=1 $(PYTEST) tests -m endurance

# mutmut is not locked: a maintainer's tool, which no test and no reader needs. Its own environment sees .venv's packages. It goes
# on where it was stopped, and shows a survivor with `_build/mutation/bin/mutmut show NAME`.
mutation: $(READY) ## break the code in a thousand small ways, each of which a test must notice (half an hour)
	$(RUN) -m venv --clear _build/mutation
	_build/mutation/bin/python -c 'import sys, sysconfig; print(sys.argv[1], file=open(sysconfig.get_path("purelib") + "/project.pth", "w"))' \
	    "$$($(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	_build/mutation/bin/python -m pip install --quiet mutmut==3.8.1
	_build/mutation/bin/mutmut run
	_build/mutation/bin/mutmut results

lint: $(READY) ## ruff, notebooks too, the order of the rooms, and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check --quiet .
	$(VENV)/bin/lint-imports --no-cache
	$(RUN) -m mypy tlb experiments kernels book/_ext

# uv resolves for every platform and Python at once, which pip cannot. setuptools and wheel are locked as well:
# the project itself is installed without build isolation, so that no unlocked package is ever fetched.
lock: $(READY) ## resolve requirements.lock again from pyproject.toml, keeping what still fits; UPGRADE=yes for the newest
	$(RUN) -m venv --clear _build/lock
	_build/lock/bin/python -m pip install --quiet uv
	printf 'setuptools>=77\nwheel\n' | _build/lock/bin/uv pip compile --quiet $(if $(UPGRADE),--upgrade) --universal --python-version 3.11 \
	    --generate-hashes --custom-compile-command 'make lock' --no-annotate --extra analysis --extra book --extra test --group fleet pyproject.toml - --output-file requirements.lock

links: $(READY) ## ask every host that the book names whether its page is still there
	$(VENV)/bin/jupyter-book build . --path-output _build/links --builder linkcheck --all

clean: ## remove what was built; keep .venv and data/
	rm -rf _build build dist mutants .pytest_cache .ruff_cache .hypothesis *.egg-info out.ipynb
	find book experiments kernels tests tlb -type d -name __pycache__ -prune -exec rm -rf {} +

# ---- The environment ---------------------------------------------------------------------------------------

# The newest Python that can make a virtual environment. Debian ships `venv` without `ensurepip` until
# python3-venv is installed, so both are tried.
NEW := import sys; sys.exit(sys.version_info < (3, 11))
FITS := import venv, ensurepip; $(NEW)

$(VENV)/.packages-installed: export WANTED_PYTHON = $(PYTHON)
$(VENV)/.packages-installed: requirements.lock
	@chosen=; lacking=; old=; \
	for python in $(if $(PYTHON),"$$WANTED_PYTHON",python3.14 python3.13 python3.12 python3.11 python3); do \
	    if ! command -v "$$python" > /dev/null; then continue; fi; \
	    if "$$python" -c '$(FITS)' 2> /dev/null; then chosen=$$python; break; fi; \
	    if "$$python" -c '$(NEW)' 2> /dev/null; then lacking=$$python; else old=$$python; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    if [ -n "$$lacking" ]; then \
	        echo "$$lacking cannot make virtual environments: on Debian or Ubuntu, 'sudo apt install python3-venv' mends it."; \
	    elif [ -n "$$old" ]; then \
	        echo "$$old is older than 3.11: install a newer Python, or name one with 'make PYTHON=/path/to/python3 ...'."; \
	    else \
	        echo "No $${WANTED_PYTHON:-python3} was found: install Python 3.11 or newer, or name one with 'make PYTHON=/path/to/python3 ...'."; \
	    fi >&2; \
	    exit 1; \
	fi; \
	echo "Making $(VENV) with $$chosen from requirements.lock: once, in one to three minutes."; \
	"$$chosen" -m venv --clear $(VENV)
	@$(RUN) -m pip install --quiet --require-hashes -r requirements.lock || { \
	    echo "The packages of requirements.lock could not be installed: pip's message above says why." >&2; \
	    exit 1; }
	@touch $@

# Editable, so that `tlb` runs the code of this checkout.
$(READY): pyproject.toml $(VENV)/.packages-installed
	@$(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
