# Two commands matter: `make run` and `make test`. Everything they need is installed below .venv and var.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
LAB_TOOLS := nginx-light wrk httperf fio sysbench iperf3 iproute2 procps cgroup-tools libvirt-clients

.PHONY: run test lint setup lab-tools bench clean
.DEFAULT_GOAL := help

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/.ready  ## install the pinned dependencies into .venv

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Cotenant needs Python 3.11 or newer (set PYTHON=...)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -c 'import lightgbm' 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && apt-get install -y -qq libgomp1 >/dev/null \
	  || { echo "LightGBM needs the system's OpenMP library: apt-get install libgomp1" >&2; exit 1; }; }
	touch $@

run: setup  ## load the example cloud, start the service on 127.0.0.1:8080, print the answer to an example question
	@BIN=$(BIN) bash examples/run.sh

test: setup lab-tools lint  ## every test and check
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lab-tools:  ## install what the lab runs (Debian and Ubuntu, as root); otherwise the lab's tests skip and say so
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  missing=""; for tool in $(LAB_TOOLS); do dpkg -s $$tool >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	  if [ -n "$$missing" ]; then \
	    echo "installing$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	      || echo "could not install$$missing: tests that need them will skip"; \
	  fi; \
	fi

bench: setup  ## measure speed and quality of placement; prints tables
	$(BIN)/python -m benchmarks.decision
	$(BIN)/python -m benchmarks.placement

clean:  ## remove what setup and runs made
	rm -rf $(VENV) var build *.egg-info
