"""The demo trains on real data where there are any, and reports that its rows are generated otherwise."""

import io
import shlex
import sys
from collections.abc import Iterator

import pytest
from chance import usually
from commands import run_here

from dbdp import optional
from dbdp.interfaces.cli.demo import adult, walkthrough
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.terminal import Terminal


def shown(database: Database, width: int = 160) -> str:
    """Return what the demo prints."""
    console = Terminal(file=io.StringIO(), width=width)
    walkthrough.run(database, console)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def generated(server_url: str) -> Iterator[str]:
    """What one demo prints on 80 columns where there are no real data; its dataset stays for the commands."""

    def unreachable() -> str:
        raise OSError("no network here")

    with pytest.MonkeyPatch.context() as patch, connect(server_url) as database:
        patch.setenv("DBDP_DATA", "/nonexistent")
        patch.setattr(adult, "download", unreachable)
        yield shown(database, width=80)


def accuracy(text: str, model: str) -> float:
    """Return the accuracy that the demo printed for a model."""
    line = next(line for line in text.splitlines() if model in line)
    return float(line.split("│")[2])


@pytest.mark.skipif(not adult.path().is_file(), reason="the real Adult table is not at hand (DBDP_DATA)")
@pytest.mark.slow
def test_on_real_data_the_private_models_beat_the_majority(database):
    def beat_it() -> bool:
        text = shown(database)
        majority = accuracy(text, "majority share")
        assert majority == pytest.approx(0.7638, abs=1e-4)
        assert accuracy(text, "not private") > 0.84
        private = [accuracy(text, interface) for interface in ("private, trained in SQL", "private, trained in Python")]
        return majority + 0.01 < min(private) <= max(private) < accuracy(text, "not private")

    assert usually(beat_it)


def test_without_real_data_it_generates_rows_and_reports_it(generated):
    assert "GENERATED, not real" in generated
    assert "no network here" in generated
    assert "DBDP_DATA names no folder" in generated


def test_it_prints_every_step_in_40_lines(generated, database):
    """Beside five lines of `make demo` itself; receipts, of 30 lines each, are where a line at the end says."""
    text = generated
    for sql in ("dbdp.register_dataset('adult'", "dbdp.dp_explain('adult'", "dbdp.dp_logreg('adult'", "dbdp.predict("):
        assert sql in text
    assert 'dbdp.LogisticRegression(epsilon=1, delta=1e-06).fit("adult")' in text
    assert len(text.splitlines()) <= 40, text
    assert text.count("of the budget is left") == 2
    line = next(line for line in text.splitlines() if line.startswith("psql "))
    assert f"dbname={database.connection.info.dbname}" in line
    assert "password" not in line


def test_it_ends_with_the_accuracies_and_commands_that_work(generated, server_url):
    end = generated[generated.index("accuracy on the held-out rows") :]
    assert "majority share" in end
    assert "released_at" not in end
    assert "register_dataset" not in end
    commands = [shlex.split(line, comments=True) for line in end.splitlines() if line.startswith("dbdp ")]
    assert [command[1] for command in commands] == ["predict", "budget", "weights"]
    assert [run_here(*command[1:], DBDP_URL=server_url).returncode for command in commands] == [0, 0, 0]


def test_without_scikit_learn_it_leaves_out_its_python_part(database, monkeypatch):
    monkeypatch.setitem(sys.modules, "dbdp.interfaces.python.estimators.linear", None)
    monkeypatch.setenv("DBDP_DATA", "/nonexistent")
    monkeypatch.setattr(adult, "download", lambda: (_ for _ in ()).throw(OSError("no network here")))
    monkeypatch.setitem(optional.EXTRAS, "dbdp", "sklearn")
    text = shown(database)
    assert "left out: this step needs" in text and "private, trained in SQL" in text
    assert "trained in Python" not in text and "majority share" in text
