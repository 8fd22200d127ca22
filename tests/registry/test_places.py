"""Places of rows outside PostgreSQL: which texts name one, which lie within a folder, and where they are shown."""

import json
import posixpath
import re
from urllib.parse import urlsplit

import psycopg
import pytest
from acting import acting
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from dbdp.interfaces.cli.main import app
from dbdp.interfaces.cli.printing import console
from dbdp.interfaces.python.client.database import Database
from dbdp.registry import places
from dbdp.registry.places import PREFIX, SCHEMES, checked, is_within, listed, parts

DIGEST = "0" * 64
GOOD = {
    "/data/visits": ("", "", ("data", "visits")),
    "/data//visits/./a/": ("", "", ("data", "visits", "a")),
    "/data/größe/*.parquet": ("", "", ("data", "größe", "*.parquet")),
    "file:/data": ("file", "", ("data",)),
    "file:///data": ("file", "", ("data",)),
    "hdfs://nn.example:8020/a b": ("hdfs", "nn.example:8020", ("a b",)),
    "hdfs:///a": ("hdfs", "", ("a",)),
    "s3a://bucket-1/a=1/b": ("s3a", "bucket-1", ("a=1", "b")),
    "abfss://box@account.dfs.core.windows.net/a": ("abfss", "box@account.dfs.core.windows.net", ("a",)),
    "/": ("", "", ()),
}
# Texts that name no place, and the rule that refuses them.
ODD = {
    "": "absolute path",
    "data/visits": "absolute path",
    "//host/data": "absolute path",
    "hdfs:////host/data": "absolute path",
    "hdfs://host": "absolute path",
    "hdfs:a/b": "absolute path",
    "/data/\x1b]0;x\x07": "printable",
    "/data/\u202exe": "printable",
    "/data/\u2028": "printable",
    "/data/\x9b31m": "printable",
    "/data/\r\n": "printable",
    "/data/\u200b": "printable",
    "/" + "a" * 1000: "at most 1000",
    "http://host/a": "scheme",
    "https://host/a": "scheme",
    "ftp://host/a": "scheme",
    "jar:file:/a": "absolute path",
    "HDFS://host/a": "scheme",
    "har:///a": "scheme",
    "jdbc:postgresql://host/a": "absolute path",
    "s3a://key:secret@bucket/a": "name of a user",
    "hdfs://alice@host/a": "name of a user",
    "hdfs://host:99999999/a": "name of a user",
    "hdfs://[::1]:8020/a": "name of a user",
    "hdfs://hö/a": "name of a user",
    "abfs://a:b@c/a": "name of a user",
    "file://host/a": "no host",
    "/data/../home": "without ..",
    "/data/..": "without ..",
    "/data/%2e%2e/home": "without",
    "/data/{.,a/b}./home": "without",
    "/data/.\\./home": "without",
    "/data#a": "without",
    f"/data {PREFIX}/home": "one place",
    f"/data/{PREFIX}/home": "one place",
}


@pytest.mark.parametrize("path", GOOD)
def test_a_place_has_parts(path):
    assert parts(PREFIX + path) == GOOD[path]


@pytest.mark.parametrize("path", ODD)
def test_an_odd_place_is_refused_by_its_rule(path):
    with pytest.raises(ValueError, match=re.escape(ODD[path])) as error:
        parts(PREFIX + path)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("text", ["/data", "spark:csv:/data", " spark:parquet:/data", "SPARK:PARQUET:/data", PREFIX])
def test_a_text_without_the_prefix_is_no_place(text):
    with pytest.raises(ValueError, match=re.escape(PREFIX)):
        parts(text)


@given(
    paths=st.lists(
        st.lists(st.sampled_from(["/", "a", " ", " a", ":", PREFIX, "\t"]), max_size=6).map("".join), max_size=3
    )
)
@example(paths=["/a b", "/c"])
@example(paths=[f"/a {PREFIX}/home"])
def test_a_list_has_the_places_that_were_joined(paths):
    """No accepted place becomes two in the variable of the environment; a split at each blank would part `/a b`."""
    stated = [PREFIX + path for path in paths]
    try:
        checked(stated)
    except ValueError:
        return
    assert [parts(each) for each in listed("  ".join(stated))] == [parts(each.rstrip()) for each in stated]


WORDS = "/ // .. . a b home * ? [.] { } , %2e %2F \\ : @ # host file: hdfs: s3a: abfss: http: 8020 ü \u3164 ~ $x"
PIECES = st.sampled_from([*WORDS.split(" "), *" \x1b\r\n\x07\x9b\u202e\u2028"])
PATHS = st.lists(PIECES, max_size=12).map("".join)


def reference(path: str) -> tuple[str, str, str]:
    """Scheme, host and normal path of a path, by the standard library."""
    split = urlsplit(path)
    return split.scheme, split.netloc, posixpath.normpath("/" + split.path.lstrip("/") + split.query * 0)


@given(path=PATHS | st.text(max_size=30))
@pytest.mark.attack("odd-place")
def test_an_accepted_place_has_no_second_meaning(path):
    try:
        scheme, host, folders = parts(PREFIX + path)
    except ValueError as error:
        assert str(error).isprintable()
        return
    assert path.isprintable()
    assert not re.search(r"\.\.|[\\%{}#]", path)
    assert scheme in ("", *SCHEMES)
    assert "@" not in host or scheme.startswith("abfs")
    assert not {"", ".", ".."} & set(folders)
    assert urlsplit(path.replace("?", "x"))[:2] == (scheme, host)


@given(path=PATHS, folder=PATHS)
@example(path="hdfs://evil/a", folder="hdfs:///")
@example(path="/data/public-evil/a", folder="/data/public")
@example(path="/data/public/a", folder="/data/public/")
@example(path="file:/home/a", folder="/home")
@example(path="s3a://ab/c", folder="s3a://a/")
@pytest.mark.attack("odd-place")
def test_a_place_lies_within_a_folder_as_paths_do(path, folder):
    try:
        stated, allowed = parts(PREFIX + path), parts(PREFIX + folder)
    except ValueError:
        return
    (*origin, inner), (*of, outer) = reference(path.replace("?", "x")), reference(folder.replace("?", "x"))
    expected = origin == of and (inner == outer or inner.startswith(outer.rstrip("/") + "/"))
    assert is_within(stated, allowed) == expected


def test_a_comparison_of_texts_would_find_other_folders():
    """The control of the test before: what it would detect."""
    for path, folder in (("/data/public-evil/a", "/data/public"), ("hdfs://evil/a", "hdfs:/"), ("/a/../b", "/a")):
        assert path.startswith(folder)
    assert not is_within(parts(PREFIX + "/data/public-evil/a"), parts(PREFIX + "/data/public"))
    assert not is_within(parts(PREFIX + "hdfs://evil/a"), parts(PREFIX + "hdfs:/"))


# --- in the server ---------------------------------------------------------------------------------------------------

REGISTER = """
select dbdp.register_dataset(
    %s, %s::regclass, 'y', '1', '{"x": {"length": 3, "norm": 1}}', 1000, 1e-3, capacity => 5)"""
PLACE = "select dbdp_internal.place_dataset(%s, %s, %s)"


@pytest.fixture
def placed(connection: psycopg.Connection, schema: str):
    """Register an empty table whose rows are at a place; give the dataset's name."""

    def call(place: str, digest: str = DIGEST) -> str:
        connection.execute("create table if not exists elsewhere (x float8[], y int)")
        name = f"{schema}_elsewhere"
        with connection.transaction():
            connection.execute(REGISTER, (name, f"{schema}.elsewhere"))
            connection.execute(PLACE, (name, place, digest))
        return name

    return call


@pytest.mark.parametrize("path", ODD)
@pytest.mark.attack("odd-place")
def test_the_server_refuses_an_odd_place(connection, placed, path):
    with pytest.raises(psycopg.Error, match=re.escape(ODD[path])) as error:
        placed(PREFIX + path)
    assert error.value.sqlstate == "DP001"
    assert error.value.diag.message_primary.isprintable()
    assert not connection.execute("select from dbdp.datasets_details where place is not null").fetchall()


@pytest.mark.parametrize("digest", ["", "other", "0" * 63, "0" * 65, "G" * 64, "\x1b" * 64, "0" * 63 + "\n"])
def test_the_server_refuses_an_odd_digest(placed, digest):
    with pytest.raises(psycopg.Error, match="64 hexadecimal digits"):
        placed(PREFIX + "/data", digest)


@pytest.mark.parametrize("path", GOOD)
def test_every_list_of_datasets_shows_a_place(server_url, connection, placed, path, monkeypatch):
    name, place = placed(PREFIX + path), PREFIX + path
    (row,) = [row for row in Database(connection).datasets() if row["name"] == name]
    assert row["place"] == place
    sql = "select source from dbdp.datasets where name = %s"
    assert connection.execute(sql, (name,)).fetchone() == (place,)
    url = ["--url", server_url]
    listed = CliRunner().invoke(app, ["datasets", "--json", *url])
    assert place in {each["place"] for each in json.loads(listed.output)}
    monkeypatch.setattr(console, "_width", 500)
    shown = CliRunner().invoke(app, ["datasets", *url]).output
    assert place in shown


def test_the_place_of_an_older_version_is_shown_escaped(server_url, connection, placed, monkeypatch):
    """Version 0.3.0 took any text."""
    name, odd = placed(PREFIX + "/data"), "spark:parquet:/\x1b]0;x\x07\u202e"
    connection.execute("update dbdp.dataset set place = %s where name = %s", (odd, name))
    monkeypatch.setattr(console, "_width", 300)
    shown = CliRunner().invoke(app, ["datasets", "--url", server_url]).output
    assert r"spark:parquet:/\x1b]0;x\x07\u202e" in shown
    for sql in ("select dbdp.dp_class_balance(%s, epsilon => 1)", "select dbdp.renew_budget(%s, 'a new year')"):
        with pytest.raises(psycopg.Error) as error:
            connection.execute(sql, (name,))
        assert r"/\x1b]0;x\x07\u202e" in error.value.diag.message_primary
        assert error.value.diag.message_primary.isprintable()


def test_a_place_is_own_for_the_role_that_registered_it(connection, placed, schema, make_role):
    from dbdp.registry import datasets
    from dbdp.sessions.client import ClientSession

    name = placed(PREFIX + "/data")
    other = make_role("reader", "dbdp_data_owner")
    connection.execute(f"grant select on {schema}.elsewhere to {other}")
    connection.execute("select dbdp.grant_training(%s, %s)", (name, other))
    assert datasets.load(ClientSession(connection), name).is_own
    with acting(connection, other):
        loaded = datasets.load(ClientSession(connection), name)
        assert (loaded.is_own, loaded.place) == (False, PREFIX + "/data")
        with pytest.raises(ValueError, match="as 'postgres' states"):
            places.check_allowed(name, loaded.registered_by, loaded.place, [])
    connection.execute("select dbdp.drop_dataset(%s)", (name,))
