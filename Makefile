# `make demo` does the main job on a real model; `make test` makes every check. Each first sets up .venv.

PYTHON ?= python3
BIN := .venv/bin

# Named after the interpreter, so that another PYTHON makes .venv anew.
made := .venv/.made-by-$(subst /,-,$(PYTHON))

.PHONY: demo test reports lint format docs clean

demo: .venv/.run
	$(BIN)/python -m zoo.demo

test: lint
	$(BIN)/python -m pytest -n 2

reports: .venv/.test
	JAX_PLATFORMS=cpu $(BIN)/python -m parity_tests.reports reports/parity

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --project . --pythonpath $(BIN)/python

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.run
	$(BIN)/python benchmarks/families.py

clean:
	rm -rf .venv build dist demo reports .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(made):
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.run: pyproject.toml $(made)
	@echo "Installing zoo into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.test: pyproject.toml $(made)
	@echo "Installing zoo, the reference and the tools of the tests into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ .venv/.run
