# make demo  sets up and runs the main job        make test  sets up and runs the tests
# PYTHON=... names the Python (3.11 or newer) that .venv is made with.
export PYTHON
# Compiled modules are kept: without them importing transformers takes twenty seconds each time.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

.PHONY: demo setup test test-real test-all lint format docs bench clean

demo:
	@bash scripts/setup.sh demo
	@$(BIN)/calyrex demo

setup:
	@bash scripts/setup.sh dev

test: setup
	$(BIN)/python -m pytest

test-real: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "real_model or slow" --timeout 900

test-all: test test-real

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup
	$(BIN)/python scripts/cli_reference.py

bench: setup
	$(BIN)/python -m bench

clean:
	rm -rf .venv build dist
