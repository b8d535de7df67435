# Every target does its own set-up; nothing but make and Python 3.11 or newer has to be there.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# two stages write into one environment
.NOTPARALLEL:

# the first Python that is new enough; asked for only when an environment has to be made
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BOOTSTRAP = @python="$(PYTHON)"; [ -n "$$python" ] || { \
	echo 'hangdog needs Python 3.11 or newer; on Debian 12, Ubuntu 24.04 or later: apt-get install python3' >&2; exit 1; }; \
	"$$python" tools/bootstrap.py
IN := .venv/bin
# the tests start hundreds of programs, each of which would compile its modules anew
unexport PYTHONDONTWRITEBYTECODE
OUR_CODE := agent server models proto cli tests tools bench

.PHONY: help setup torch demo test test-slow soak night check lint docs protos protos-check bench accuracy world fit frameworks healthy gpu attacks laws fuzz profiler locks base-image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: .venv/dev.stamp ## make .venv with everything but torch

torch: .venv/torch.stamp ## add torch to .venv: the demo and the slow tests need it

demo: .venv/run.stamp .venv/torch.stamp ## hang a real 8-rank training job here and name the culprit (FAULT=gc SEED=3 to choose, STAY=1 to look at it in a browser)
	@$(IN)/hangdog demo $(if $(FAULT),--fault $(FAULT)) $(if $(SEED),--seed $(SEED)) $(if $(STAY),--stay)

test: .venv/dev.stamp ## run the fast tests, side by side (a few of them, ARGS="FILE... -k WORD", one after another)
	@$(IN)/python tools/compile_tests.py
	$(IN)/python -m pytest -q -n auto --dist worksteal $(ARGS)

# `parallel` tests measure no time and need no core of their own
test-slow: .venv/dev.stamp .venv/torch.stamp ## run the slow tests: real training jobs, every fault (a few of them, ARGS="FILE... -k WORD")
	@$(IN)/python tools/compile_tests.py
	$(if $(ARGS),,$(IN)/python -m pytest -q -m "slow and parallel" -n auto --dist worksteal)
	$(IN)/python -m pytest -q -m $(if $(ARGS),slow $(ARGS),"slow and not parallel" --durations=40)

soak: .venv/dev.stamp .venv/torch.stamp ## watch an hour of healthy training, and break more live jobs: too long for every change
	$(IN)/python -m pytest -q -s -m soak $(ARGS)

night: .venv/dev.stamp .venv/torch.stamp ## pass a night on call: three real hangs, two people in a browser; prints how soon each surface says so
	$(IN)/python -m pytest -q -s -m soak tests/night $(ARGS)

# cheapest first; stops at the first failure
check: ## everything a change must pass, the slow tests apart
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory protos-check

lint: .venv/dev.stamp ## check format, style, types and who imports whom
	$(IN)/ruff format --check $(OUR_CODE)
	$(IN)/ruff check $(OUR_CODE)
	$(IN)/mypy
	$(IN)/lint-imports

docs: .venv/dev.stamp ## check what is made of the docs: help texts, what the agent opens (FIX=1 rewrites them)
	$(IN)/python tools/helps.py $(if $(FIX),--fix)
	$(IN)/python tools/footprint.py $(if $(FIX),--fix)

protos: ## generate the protobuf code anew
	$(BOOTSTRAP) protos
	@PATH="$$PWD/.venv-protos/bin:$$PATH" .venv-protos/bin/python tools/protos.py

protos-check: ## check that the generated code is up to date and every message and field has a comment
	$(BOOTSTRAP) protos; status=$$?; [ $$status -ne 77 ] || exit 0; [ $$status -eq 0 ] || exit 1; \
	PATH="$$PWD/.venv-protos/bin:$$PATH" .venv-protos/bin/python tools/protos.py --check

bench: .venv/dev.stamp ## how the cost of a diagnosis grows with the job
	$(IN)/python bench/diagnosis.py $(ARGS)

accuracy: .venv/dev.stamp ## how often the diagnosis is right on simulated incidents and in the other worlds (ARGS="--quick --world NAME=FOLDER")
	$(IN)/python bench/accuracy --worlds $(ARGS)

world: .venv/dev.stamp ## write 240 timed incidents by another hand into build/world and judge them (ARGS="--cases 60 --seed 7")
	@rm -rf build/world
	$(IN)/python bench/worlds/timed --out build/world $(ARGS)
	$(IN)/python bench/worlds build/world --misses

fit: .venv/dev.stamp ## fit the table of likelihoods to worlds whose truth is known, and judge each by the others (ARGS="fourth=build/world ... --write")
	$(IN)/python bench/fit $(ARGS)

frameworks: .venv/dev.stamp ## record real trainers of other frameworks anew, busy and broken, and judge them (ARGS="--only jax"; an hour)
	$(IN)/python bench/frameworks install
	$(IN)/python bench/frameworks record $(ARGS)

healthy: .venv/dev.stamp ## replay healthy phases of real trainers for 200 run-hours and count false alarms (ARGS="--hours 20" for a look)
	$(IN)/python bench/healthy replay $(ARGS)

gpu: .venv/dev.stamp .venv/torch.stamp ## prove all of it on this machine's GPU, or without one (ARGS="--dry --out DIR"; docs/gpu.md)
	$(IN)/python bench/gpu $(ARGS)

attacks: .venv/dev.stamp ## try each race between an attacker and the agent a thousand times, not a hundred: half an hour
	HANGDOG_TRIES=1000 $(IN)/python -m pytest -q -m slow -n 2 tests/agent/attacks $(ARGS)

laws: .venv/dev.stamp ## check each property with a thousand drawn examples, not forty: an hour
	$(IN)/python -m pytest -q -n auto -m hypothesis --hypothesis-profile=thorough $(ARGS)

fuzz: .venv/dev.stamp ## feed a reader of evidence garbage (READER=log RUNS=1000000; all readers without READER)
	$(IN)/python tests/fuzzing $(or $(READER),all) $(or $(RUNS),100000) $(SEED)

PROFILER := agent/profiler/libhangdog_profiler.so
profiler: $(PROFILER) ## build the NCCL profiler plug-in, for NCCL_PROFILER_PLUGIN (a C compiler is all it takes)

$(PROFILER): agent/profiler/profiler.c agent/profiler/nccl_profiler.h
	$(CC) -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -o $@ $< -lpthread

locks: ## pin all that is installed, with hashes, and list it per image (UPGRADE=1: the newest versions; else the pinned ones stay)
	$(BOOTSTRAP) locks
	@.venv-locks/bin/python tools/locks.py $(if $(UPGRADE),--upgrade)

base-image: ## pin the images' base by its digest, which takes a network with a registry (BASE=python:3.11-slim)
	@python="$(PYTHON)"; "$$python" tools/base_image.py $(BASE)

clean: ## remove what make made
	rm -rf .venv .venv-protos .venv-locks .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build $(PROFILER)

.venv/run.stamp: pyproject.toml tools/bootstrap.py
	$(BOOTSTRAP) run
.venv/dev.stamp: pyproject.toml tools/bootstrap.py
	$(BOOTSTRAP) dev
.venv/torch.stamp: pyproject.toml tools/bootstrap.py
	$(BOOTSTRAP) torch
