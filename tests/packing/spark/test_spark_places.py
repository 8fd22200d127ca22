"""A client on Spark opens no place that its user neither registered nor allowed."""

import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import drop_datasets

from dbdp.algorithms import Request
from dbdp.interfaces.cli.output import opened_on
from dbdp.interfaces.python.client.connecting import connect
from dbdp.interfaces.python.client.database import Database
from dbdp.packing.spark import files
from dbdp.packing.spark.engine import SparkEngine
from dbdp.registry import places
from dbdp.registry.places import PREFIX

PASSWORD, DIGEST = "of the tests alone", "0" * 64
PIECES = st.sampled_from(["a", "b", "home", "..", ".", "*", "{a,b}", "%2e", "ü", "\x1b", "\u202e", "a b", "x" * 40])
LOCAL = st.sampled_from(["", "/", "//", "file:/", "file:///", "jdbc:"])
HEADS = LOCAL | st.sampled_from(
    ["hdfs://nn:8020/", "hdfs://nn/", "hdfs://u:p@nn/", "s3a://b/", "http://h/", "abfss://c@a/"]
)
ENDS = st.sampled_from(["", "/"])
PATHS = st.builds(lambda head, parts, end: head + "/".join(parts) + end, HEADS, st.lists(PIECES, max_size=4), ENDS)
TEXTS = st.one_of(PATHS.map(lambda path: PREFIX + path), PATHS, st.text(max_size=20))


class Opened(list[str]):
    """Stands for Spark, and notes each path that would be opened."""

    @property
    def read(self) -> Any:
        return SimpleNamespace(parquet=self._open)

    def _open(self, path: str) -> Any:
        self.append(path)
        raise OSError("opened")


def attempts(engine: SparkEngine, dataset: Any) -> Iterator[Any]:
    """All that an engine does with a dataset's rows."""
    yield lambda: engine.check_rows(dataset)
    yield lambda: engine.check(dataset, Request(1.0))
    yield lambda: engine.rows(dataset, None).__enter__()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=TEXTS, own=st.booleans(), allowed=st.lists(TEXTS, max_size=3), listed=st.booleans())
def test_an_engine_opens_only_what_is_own_or_allowed(monkeypatch, place, own, allowed, listed):
    opened = Opened()
    monkeypatch.setattr(files, "files_of", lambda spark, path: spark.read.parquet(path))
    monkeypatch.delenv(places.VARIABLE, raising=False)
    try:
        sound = [places.parts(each) for each in allowed]
    except ValueError:
        with pytest.raises(ValueError, match="cannot be read"):
            SparkEngine(opened, None, allowed)
        return
    if listed and not any(set(each) & set(" \t\n\x1c\x1d\x1e\x1f\x85\xa0") for each in allowed):
        monkeypatch.setenv(places.VARIABLE, " ".join(allowed))
        engine = SparkEngine(opened, None)
    else:
        engine = SparkEngine(opened, None, allowed)
    dataset = SimpleNamespace(id=1, name="d", place=place, is_own=own, registered_by="mal", column_types={}, rows=1)
    expected = own or _is_allowed(place, sound)
    for attempt in attempts(engine, dataset):
        before = len(opened)
        with pytest.raises(OSError if expected else ValueError) as error:
            attempt()
        assert len(opened) - before == expected
        assert expected or str(error.value).isprintable()
    assert set(opened) <= {place.removeprefix(PREFIX)}


def _is_allowed(place: str, sound: list[places.Parts]) -> bool:
    try:
        return any(places.is_within(places.parts(place), each) for each in sound)
    except ValueError:
        return False


# --- the attack, with roles ------------------------------------------------------------------------------------------

DECLARED = {"label": "y", "positive": "1", "features": {"x": [0, 1]}, "epsilon": 50.0, "delta": 1e-5}
REGISTER = """
select dbdp.register_dataset(%s, %s::regclass, 'y', '1', '{"x": [0, 1]}', 500, 1e-5, capacity => 200)"""


@pytest.fixture
def roles(server_url: str, connection: psycopg.Connection) -> Iterator[dict[str, psycopg.Connection]]:
    """Sessions of two data owners, each with a schema."""
    names = {who: f"{who}_{secrets.token_hex(4)}" for who in ("alice", "mal")}
    sessions = {}
    for who, name in names.items():
        connection.execute(f"create role {name} login password '{PASSWORD}' in role dbdp_data_owner")
        connection.execute(f"create schema {name} authorization {name}; grant usage on schema {name} to public")
        sessions[who] = psycopg.connect(server_url, user=name, password=PASSWORD, autocommit=True)
        sessions[who].execute(f"set search_path = {name}, public")
    yield sessions
    for session in sessions.values():
        session.close()
    drop_datasets(connection, "split_part(source, '.', 1) = any(%s)", list(names.values()))
    for name in names.values():
        connection.execute(f"drop owned by {name} cascade; drop role {name}")


@pytest.fixture
def file_of_alice(tmp_path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "private.parquet"
    values = [i / 200 for i in range(200)]
    pq.write_table(pa.table({"x": values, "y": pa.array([int(each > 0.5) for each in values], pa.int32())}), file)
    file.chmod(0o600)
    return file


def placed(roles: dict[str, psycopg.Connection], place: str, digest: str) -> str:
    """Register an empty table of mal's whose rows are at a place, and let alice train on it."""
    mal, alice = roles["mal"], roles["alice"]
    name = f"weather_{secrets.token_hex(4)}"
    mal.execute(f"create table {name} (x float8, y int); grant select on {name} to {alice.info.user}")
    with mal.transaction():
        mal.execute(REGISTER, (name, f"{mal.info.user}.{name}"))
        mal.execute("select dbdp_internal.place_dataset(%s, %s, %s)", (name, place, digest))
    mal.execute("select dbdp.grant_training(%s, %s)", (name, alice.info.user))
    return name


def charges(connection: psycopg.Connection, name: str) -> int:
    return connection.execute("select count(*) from dbdp.history where dataset = %s", (name,)).fetchone()[0]


CALLS = {
    "train": lambda database, name: database.train(name, Request(20.0, 1e-6)),
    "tune": lambda database, name: database.tune(name, _tuning()),
    "class balance": lambda database, name: database.class_balance(name, epsilon=20.0),
}


def _tuning() -> Any:
    from dbdp.algorithms.combined.tuning import TuningRequest

    candidates = ({"regularisation": 0.1}, {"regularisation": 0.2})
    return TuningRequest(Request(20.0, 1e-6, algorithm="bolt_on"), candidates)


def test_no_client_opens_the_place_of_another_role_unnamed(spark, connection, roles, file_of_alice, monkeypatch):
    found = files.files_of(spark, str(file_of_alice))
    place = f"{PREFIX}{file_of_alice}"
    name = placed(roles, place, found.digest)
    opened, files_of = [], files.files_of
    monkeypatch.setattr(files, "files_of", lambda spark, path: (opened.append(path), files_of(spark, path))[1])
    alice = connect(roles["alice"])
    assert {row["name"]: row["place"] for row in alice.datasets()}[name] == place
    elsewhere = [f"{PREFIX}/data", f"{PREFIX}{file_of_alice}x", f"{PREFIX}file:{file_of_alice}"]
    for allowed in ([], elsewhere):
        for call in CALLS.values():
            with pytest.raises(ValueError, match=r"--place, or DBDP_PLACES"):
                call(alice.on_spark(spark, places=allowed), name)
    assert (opened, charges(connection, name)) == ([], 0)
    for number, allowed in enumerate([place, f"{PREFIX}{file_of_alice.parent}", f"{PREFIX}{file_of_alice.parent}/"], 1):
        CALLS["class balance"](alice.on_spark(spark, places=[allowed]), name)  # the control
        assert charges(connection, name) == number
    assert set(opened) == {str(file_of_alice)}


def test_a_role_opens_its_own_place_as_before(spark, roles, file_of_alice):
    alice = connect(roles["alice"]).on_spark(spark)
    alice.register_dataset("visits_of_alice", f"{PREFIX}{file_of_alice}", **DECLARED)
    assert alice.class_balance("visits_of_alice", epsilon=20.0)["receipt"]["rows"] == 200


@pytest.mark.slow
def test_no_address_is_connected_to_unless_it_is_allowed(spark, connection, roles):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"{PREFIX}hdfs://127.0.0.1:{listening.getsockname()[1]}/a"
        name, callers = placed(roles, place, DIGEST), []
        threading.Thread(target=_note, args=(listening, callers), daemon=True).start()
        alice: Database = connect(roles["alice"])
        for call in CALLS.values():
            with pytest.raises(ValueError, match="this client would read"):
                call(alice.on_spark(spark), name)
        assert callers == []
        with pytest.raises(Exception, match=""):
            CALLS["train"](alice.on_spark(spark, places=[place]), name)  # the control
        assert callers
    assert charges(connection, name) == 0


def _note(listening: socket.socket, callers: list[Any]) -> None:
    """Accept connections, and close them at once."""
    while True:
        try:
            accepted, address = listening.accept()
        except OSError:
            return
        callers.append(address)
        accepted.close()


def test_the_command_line_allows_a_place(spark, monkeypatch, server_url):
    allowed = []
    monkeypatch.setattr(Database, "on_spark", lambda self, spark, places: allowed.append(places) or self)
    monkeypatch.setattr("dbdp.packing.spark.jobs.started", lambda master: _spark_stays(spark))
    with opened_on(server_url, "spark", None, [f"{PREFIX}/data"]), opened_on(server_url, "spark", None):
        pass
    assert [list(each) for each in allowed] == [[f"{PREFIX}/data"], []]
    elsewhere = opened_on(server_url, "postgresql", None, ["x"])
    with pytest.raises(ValueError, match=r"--place x is for --engine spark"), elsewhere:
        pass


def _spark_stays(spark: Any) -> Any:
    from contextlib import nullcontext

    return nullcontext(spark)
