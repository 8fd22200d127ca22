# Every target needs only make and a Python >= 3.8 to begin with: `make demo`, `make test`. Those of packagers, from all to
# uninstall, use no network: docs/packaging.md.

PYTHON ?= python3
BOOTSTRAP = $(PYTHON) dbdp/deployment/bootstrap.py .venv

# Each of two workers starts its own server; a server that DBDP_TEST_URL names is used by one process only.
WORKERS = $(if $(DBDP_TEST_URL),0,2)

TESTS_OF_IMAGE = tests/image $(addprefix tests/,sessions registry packing controller deployment sql python cli docs rights security fuzz) \
	--ignore tests/deployment/test_cluster.py --ignore tests/deployment/test_installer.py
BUILD_FAILED = { echo "docker build failed: see its message above. If it could not download packages, containers have no" \
	"network: build in the host's network, with the same command and DOCKER_BUILD=--network=host" >&2; exit 1; }
LOCK = .venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes

# For packagers. PYTHON is PL/Python's, with the packages that building and the server need.
PG_CONFIG ?= pg_config
SHAREDIR ?= $(shell $(PG_CONFIG) --sharedir)
BINDIR ?= $(shell $(PG_CONFIG) --bindir)
LAY = PYTHONPATH=build/server $(PYTHON) -P -m dbdp.deployment.extension.layout "$(SHAREDIR)"

.DEFAULT_GOAL := help
.PHONY: help all install uninstall installcheck wheels dist demo test test-security test-slow test-statistical test-docker test-pg-upgrade image lock bench bench-scale bench-statistics bench-accuracy reproduce docs reference lint clean test-spark bench-spark

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):  *## /\1\t/p' Makefile | expand -t 20

all:  ## build for the Python of PL/Python, PYTHON, without a network; for packagers
	@$(PYTHON) -c 'import Cython, setuptools, numpy, flint, psycopg; assert int(setuptools.__version__.split(".")[0]) >= 78' || { \
	  echo "$(PYTHON) needs Cython, setuptools 78.1.1, NumPy, python-flint and psycopg: see docs/packaging.md" >&2; exit 1; }
	$(PYTHON) setup.py --quiet build --build-base build/objects --build-lib build/server

install: all  ## copy the extension's files below DESTDIR to the SHAREDIR of PG_CONFIG; LAYOUT may be --system-libraries
	$(LAY) --destdir "$(or $(DESTDIR),/)" $(LAYOUT)

uninstall:  ## delete what install copied
	rm -rf "$(DESTDIR)$(SHAREDIR)/dbdp" "$(DESTDIR)$(SHAREDIR)"/extension/dbdp.control "$(DESTDIR)$(SHAREDIR)"/extension/dbdp--*.sql

installcheck:  ## check a running server as its superuser: that of PGHOST, PGPORT and PGUSER, or of DBDP_TEST_URL
	@"$(BINDIR)/psql" --no-psqlrc --quiet --file release/installcheck.sql "$${DBDP_TEST_URL:-dbname=postgres}"

wheels:  ## a wheel for CPython 3.11 and later, its bill of materials and hashes, in dist
	$(BOOTSTRAP) --extras release && .venv/bin/python release/wheels.py dist

dist:  ## the last commit as a zip for PGXN, in dist
	mkdir -p dist && git archive --format zip --prefix "dbdp-$$(git show HEAD:META.json | sed -n 's/^  "version": "\(.*\)",/\1/p')/" \
	  --output "dist/dbdp-$$(git show HEAD:META.json | sed -n 's/^  "version": "\(.*\)",/\1/p').zip" HEAD

demo:  ## train a private model on a fresh machine, and print every step
	$(BOOTSTRAP) --extras sklearn && .venv/bin/dbdp demo

# Bytecode is written whatever the environment says: without it half of the collection is compiling, in each worker.
test:  ## the ordinary tests
	$(BOOTSTRAP) --extras test && PYTHONDONTWRITEBYTECODE= .venv/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not statistical"

test-security:  ## the attacks, including the slow ones
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m security

test-slow:  ## the tests that take minutes
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m slow

test-statistical:  ## the tests that repeat an experiment many times
	$(BOOTSTRAP) --extras test && .venv/bin/pytest -m statistical

test-spark:  ## the tests of Apache Spark, the slow ones too; as root it installs a missing Java
	java -version >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && apt-get install -qq --yes --no-install-recommends default-jre-headless; } \
	  || { echo "Java is missing: install Java 17, as default-jre-headless" >&2; exit 1; }
	$(BOOTSTRAP) --extras test,connect && .venv/bin/pytest tests/packing/spark tests/sessions -m "slow or not slow"

image:  ## the images of PostgreSQL 18, 17 and 15; DOCKER_BUILD may hold options for docker build
	@docker info >/dev/null || { echo "no container engine is running: start one, or set DOCKER_HOST" >&2; exit 1; }
	docker build $(DOCKER_BUILD) --force-rm -f docker/Dockerfile -t dbdp:17 . || $(BUILD_FAILED)
	docker build $(DOCKER_BUILD) --force-rm -f docker/Dockerfile -t dbdp:18 --build-arg DEBIAN=forky-slim . || $(BUILD_FAILED)
	docker build $(DOCKER_BUILD) --force-rm -f docker/Dockerfile -t dbdp:15 --build-arg DEBIAN=bookworm-slim . || $(BUILD_FAILED)

test-docker: image test-pg-upgrade  ## the server tests on each image; DOCKER_BUILD as for image
	$(BOOTSTRAP) --extras test,docker
	DBDP_TEST_IMAGE=dbdp:17 .venv/bin/pytest -n 2 --dist loadfile $(TESTS_OF_IMAGE)
	DBDP_TEST_IMAGE=dbdp:18 .venv/bin/pytest -n 2 --dist loadfile $(TESTS_OF_IMAGE)
	DBDP_TEST_IMAGE=dbdp:15 .venv/bin/pytest -n 2 --dist loadfile $(TESTS_OF_IMAGE)

test-pg-upgrade: image  ## pg_upgrade from the image of PostgreSQL 15 to that of 17; DOCKER_BUILD as for image
	$(BOOTSTRAP) --extras test,docker
	DBDP_TEST_IMAGE=dbdp:17 .venv/bin/pytest -m slow tests/image/test_upgraded_image.py

lock:  ## pin the Python packages of the image to their newest versions, with hashes
	$(BOOTSTRAP) --extras docker
	$(LOCK) pyproject.toml -o docker/requirements.txt
	$(LOCK) docker/build-requirements.in -o docker/build-requirements.txt

bench:  ## speed against a C aggregate, written to build/bench.json; ARGS may hold options, such as --only classes
	$(BOOTSTRAP) --extras bench && .venv/bin/python -m benchmarks $(ARGS)

bench-scale:  ## time and memory against the number of rows, drawn and written to build; ARGS may hold options
	$(BOOTSTRAP) --extras bench,accuracy && .venv/bin/python -m benchmarks.scale $(ARGS)

bench-spark:  ## speed on Apache Spark beside MLlib, written to build/bench-spark.json; ARGS may hold numbers of rows and other options
	$(BOOTSTRAP) --extras spark && .venv/bin/python -m benchmarks.spark $(ARGS)

bench-statistics:  ## describe, tables and synthetic rows beside OpenDP and SmartNoise, written to build/statistics; ARGS may hold options
	$(PYTHON) dbdp/deployment/bootstrap.py build/statistics/venv --extras statistics && build/statistics/venv/bin/python -m benchmarks.statistics $(ARGS)

bench-accuracy:  ## accuracy beside other systems, written to build/accuracy; ARGS may hold options, such as --only adult
	$(BOOTSTRAP) --extras accuracy && .venv/bin/python -m benchmarks.accuracy $(ARGS)

reproduce:  ## the papers' experiments again, written to build/reproduce; ARGS may hold options, such as --full or --list
	$(BOOTSTRAP) --extras accuracy && .venv/bin/python -m benchmarks.reproduce $(ARGS)

docs:  ## the site of docs/, built into build/site; a warning is an error
	$(BOOTSTRAP) --extras docs && NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

reference:  ## regenerate the pages of docs/reference/
	$(BOOTSTRAP) --extras docs && .venv/bin/python docs/generate.py

lint:  ## ruff and mypy
	$(BOOTSTRAP) --extras test && .venv/bin/ruff check . && .venv/bin/mypy

clean:  ## delete build results; the private cluster and its data stay
	rm -rf .venv build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache dbdp/*/*.so dbdp/*/*/*.so
