# Everything starts from nothing but make and a Python >= 3.8: `make demo`, `make test`.

PYTHON ?= python3
BOOTSTRAP = $(PYTHON) dbdp/bootstrap.py .venv

# Each of two workers has a server of its own; one that DBDP_TEST_URL names is shared by none.
WORKERS = $(if $(DBDP_TEST_URL),0,2)

.DEFAULT_GOAL := help
.PHONY: help demo test test-security test-slow test-statistical bench docs reference lint clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):  *## /\1\t/p' Makefile | expand -t 20

demo:  ## from a fresh machine to a private model, with everything it did printed
	$(BOOTSTRAP) && .venv/bin/dbdp demo

test:  ## the ordinary tests
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -n $(WORKERS) --dist loadfile -m "not slow and not statistical"

test-security:  ## the attacks, the slow ones too
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m security

test-slow:  ## the tests that take minutes
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m slow

test-statistical:  ## the tests that repeat an experiment many times
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m statistical

bench:  ## speed against a C aggregate, written to build/bench.json
	$(BOOTSTRAP) --extras bench && .venv/bin/python -m benchmarks

docs:  ## the site of docs/, built into build/site; a warning is an error
	$(BOOTSTRAP) --extras docs && NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict

reference:  ## write the generated pages of docs/reference/ anew
	$(BOOTSTRAP) --extras docs && .venv/bin/python docs/generate.py

lint:  ## ruff and mypy
	$(BOOTSTRAP) --extras test && .venv/bin/ruff check . && .venv/bin/mypy

clean:  ## delete what was built here; the private cluster and its data stay
	rm -rf .venv build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache dbdp/*.so dbdp/*/*.so
