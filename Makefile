## make install   a virtual environment in .venv with every extra; the other targets call it
## make demo      a batch over real papers, its worker killed half-way; ARGS="--json", ARGS="--keep"
## make test      the whole test suite, against real servers of its own; ARGS="-k name", WORKERS=4
## make check     format, lint, import contracts, types
## make bench     the benchmarks, one JSON line each; ARGS="name"
## make chaos     the long fault-injection suite, then a campaign of random faults; SEED=... repeats one of its runs
##
## Each works in a fresh clone with Python 3.11 or later, without services and without Docker.

# The newest release is not always the one that every package supports: 3.11 where there is one.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 4
# Some machines tell Python to keep no bytecode: then each of a thousand processes would compile every module again.
export PYTHONDONTWRITEBYTECODE =
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help install demo test check bench chaos

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

install: $(INSTALLED)

# All that pip says goes to stderr: stdout belongs to the target that was asked for.
$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv 1>&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' 1>&2
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python starter.py demo $(ARGS)

test: $(INSTALLED)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist load --maxschedchunk 1 $(ARGS)

check: $(INSTALLED)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/mypy --python-version 3.14

bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks $(ARGS)

chaos: $(INSTALLED)
ifdef SEED
	@$(BIN)/python -m tests.chaos --runs 1 --seed $(SEED) $(ARGS)
else
	@FANOUT_CHAOS=1 $(BIN)/python -m pytest -s -m 'chaos or not chaos' \
		tests/chaos tests/store/test_state_machine.py tests/faults tests/sweeping tests/diagnosis tests/test_keys.py \
		tests/test_sql_items.py tests/http/test_submits.py tests/test_poison.py tests/test_cancel_races.py tests/test_deploys.py \
		tests/test_temporal_starts.py $(ARGS)
endif
