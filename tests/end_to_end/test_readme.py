"""The README does what it says: its SQL, Python and commands are executed in its order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def environment(server_url: str) -> dict[str, str]:
    """The doors use the tests' server."""
    return os.environ | {"DBDP_URL": server_url}


@pytest.fixture(scope="module")
def patients(server_url: str) -> None:
    """The README's SQL was run, in order, by a session that finds `dbdp` on its search_path."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        for block in blocks("sql")[1:]:
            for statement in filter(str.strip, block.split(";\n")):
                connection.execute(statement.encode())


@pytest.mark.usefixtures("patients")
def test_its_sql_trains_and_predicts(server_url: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        sql = "select count(*) from dbdp.models where dataset in ('patients', 'visits')"
        trained = connection.execute(sql).fetchone()
        told = "".join(blocks("sql")[1:])
        of_groups = re.findall(r"groups => array\[(.*?)\]", told)  # a model for each
        assert trained == (len(re.findall(r"from dbdp.dp_", told)) + sum(each.count(",") for each in of_groups),)
        connection.execute(blocks("sql")[0].encode())


@pytest.mark.usefixtures("patients")
def test_the_sql_of_the_operations_runs(server_url: str) -> None:
    with psycopg.connect(server_url) as connection:
        for block in blocks("sql", OPERATIONS):
            for statement in filter(str.strip, block.split(";\n")):
                connection.execute(statement.encode())
        found = connection.execute("select registrations, total_epsilon from dbdp.budget('patients')").fetchone()
        connection.rollback()
    assert found == (2, 6)


@pytest.mark.usefixtures("patients")
@pytest.mark.parametrize("code", blocks("python"))
def test_its_python_runs(code: str, environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def commands() -> list[str]:
    """Return the README's commands that need nothing but a server."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    named = [line.removeprefix("$ ").partition("#")[0].strip() for line in lines]
    return [line for line in named if line.startswith("dbdp ") and not line.startswith("dbdp install")]


@pytest.mark.usefixtures("patients")
@pytest.mark.parametrize("command", commands())
def test_its_commands_run(command: str, environment: dict[str, str], server_url: str) -> None:
    with psycopg.connect(server_url) as connection:
        model = connection.execute("select max(id) from dbdp.models where dataset = 'patients'").fetchone()[0]
        sql = "select bool_and(ok) filter (where dataset = 'patients'), bool_or(not ok)::int from dbdp.check_ledger()"
        own, findings = connection.execute(sql).fetchone()  # other tests may have wound odometers of theirs back
    assert own
    command = command.replace("dbdp predict 1 ", f"dbdp predict {model} ")
    arguments = [sys.executable, "-m", "dbdp.cli", *shlex.split(command)[1:]]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (3 * findings if command == "dbdp check-ledger" else 0), done.stderr
    assert done.stdout


def test_it_names_every_target_of_the_makefile_that_it_promises() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make (\w+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
