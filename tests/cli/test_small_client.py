"""A client with the mandatory libraries alone: all works but the calls of an extra, which name it."""

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dbdp.optional import EXTRAS, MissingLibraryError, needing

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MANDATORY = {"numpy", "python-flint", "psycopg", "click", "rich"}
WITHOUT = """
import importlib.abc, sys
class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
"""
EVERY_HELP = """
from click.testing import CliRunner
from dbdp.interfaces.cli.main import app
def paths(command, *path):
    yield path
    for name in getattr(command, "list_commands", lambda _: ())(None):
        yield from paths(command.get_command(None, name), *path, name)
for path in paths(app):
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0 and "Usage" in done.output, (path, done.output, done.exception)
    print(*path)
"""
COMMAND = "import sys; from dbdp.interfaces.cli.main import main; sys.argv = ['dbdp', *{arguments}]; main()"
CALLS = """
import dbdp
database = dbdp.connect({url!r})
[dataset] = [row for row in database.datasets() if row["name"] == "ward"]
request = dbdp.Request(epsilon=1.0, delta=1e-7)
plan = database.explain("ward", request)
model = database.train("ward", request)
assert len(database.predictions(model.id, "ward", most=3).rows) == 3
assert database.budget("ward")["left_share"] < 1 and database.models()
assert database.describe("ward", epsilon=0.5, delta=1e-7).statistic
assert dbdp.spending() is not None
print("done")
"""


def bare(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that finds no optional library."""
    program = WITHOUT.format(names=set(EXTRAS)) + code
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300, cwd="/"
    )


@pytest.fixture(scope="module")
def requirements() -> dict[str, list[str]]:
    """What each extra of the installed package requires; the folder of the source may have an older build's list."""
    code = "print(json.dumps({each: requirements(each) for each in ('all', *EXTRAS.values())}))"
    return json.loads(bare(f"import json; from dbdp.optional import EXTRAS, requirements; {code}").stdout)


def test_the_mandatory_libraries_are_five():
    assert {Requirement(each).name for each in PROJECT["dependencies"]} == MANDATORY


def test_the_bare_interpreter_finds_no_optional_library():
    assert "ModuleNotFoundError: No module named 'scipy'" in bare("import scipy").stderr
    assert bare("import numpy, flint, psycopg, click, rich").returncode == 0


def test_every_command_shows_its_help_in_a_small_client():
    done = bare(EVERY_HELP)
    assert done.returncode == 0, done.stderr
    assert {"train", "predict", "explain", "doctor", "install", "web", "server start"} <= set(done.stdout.splitlines())


def test_a_small_client_trains_and_predicts_in_python(registered, server_url):
    done = bare(CALLS.format(url=server_url))
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize(
    "command",
    ["doctor", "explain ward --epsilon 1 --delta 0", "train ward --epsilon 1 --delta 0", "datasets", "ledger ward"],
)
def test_a_small_client_has_the_command(registered, server_url, command):
    arguments = [*shlex.split(command), "--json", "--url", server_url]
    done = bare(COMMAND.format(arguments=arguments))
    assert done.stderr == "" or "Traceback" not in done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import dbdp; dbdp.LogisticRegression", "sklearn"),
        ("from dbdp import MLPClassifier", "sklearn"),
        ("import dbdp.orm", "sqlalchemy"),
        (COMMAND.format(arguments=["web", "--port", "0", "--url", "postgresql:///x"]), "web"),
        ("import pathlib; from dbdp.interfaces.cli.plots.pictures import check; check(pathlib.Path('a.svg'))", "plot"),
        ("from dbdp.interfaces.python.released_figures import Figures; Figures([{'statistic': 1}]).frame", "pandas"),
        ("import sys; del sys.meta_path[0]; import sklearn.svm, dbdp.interfaces.python.estimators.plain_pipeline as p\n"
         + WITHOUT.format(names={"pandas"}) + "sys.modules.pop('pandas', None); p._encoded(None)", "pandas"),
        ("from dbdp.interfaces.python import frames; frames._arrow_table({})", "arrow"),
        ("from dbdp.interfaces.cli.printing import opened_on; opened_on(None, 'spark', None).__enter__()", "spark"),
        ("from dbdp.algorithms.families.perturbed_objective.minimisation import minimise\n"
         "class Rows:\n    pack = staticmethod(lambda: None)\nminimise(Rows, None, 1.0, 1)", "scipy"),
    ],
)  # fmt: skip
def test_a_call_that_needs_an_extra_names_its_command(requirements, code, extra):
    done = bare(code)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.endswith(f"(the extra `{extra}`)")
    command = shlex.split(last.partition(": run ")[2].partition(" (the extra")[0])
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[4:] == requirements[extra]


def test_the_command_installs_what_the_extra_declares(requirements):
    for extra in sorted(set(EXTRAS.values()) - {"spark"}):
        assert list(map(Requirement, requirements[extra])) == [
            Requirement(each) for each in PROJECT["optional-dependencies"][extra]
        ]
    assert {Requirement(each).name for each in requirements["spark"]} == {"pyarrow", "pandas", "pyspark"}
    every = {Requirement(each).name for each in requirements["all"]}
    assert every >= {"scikit-learn", "scipy", "sqlalchemy", "pandas", "pyarrow", "matplotlib", "fastapi"}
    assert not every & {"pyspark", "dbdp"}


def test_a_library_of_no_extra_is_not_hidden():
    with pytest.raises(ModuleNotFoundError, match="absent"), needing("a test"):
        raise ModuleNotFoundError("No module named 'absent'", name="absent")
    with pytest.raises(MissingLibraryError, match="a test needs sklearn"), needing("a test"):
        raise ModuleNotFoundError("No module named 'sklearn.base'", name="sklearn.base")
