"""What is shipped: sdist and wheel hold the tree, and the wheel alone puts the extension on a server."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from servers import temporary_cluster

from dbdp import __version__
from dbdp.deployment.cluster import Cluster

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
META = json.loads((ROOT / "META.json").read_text())
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SHIPPED = ("dbdp", "sql", "plpython", "docs", "tests", "benchmarks", "docker", "release")
MOST = 200 << 20  # bytes of a client's environment: 159 MB with pip and setuptools of Python 3.11
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "*.c", ".*_cache", "*.egg-info")


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source as a fresh checkout has it."""
    fresh = tmp_path_factory.mktemp("checkout") / "dbdp"
    fresh.mkdir()
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, fresh)
    for name in SHIPPED:
        shutil.copytree(ROOT / name, fresh / name, ignore=BUILT)
    return fresh


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", tree)
    (made,) = (tree / "dist").glob("*.tar.gz")
    return made


def files(tree: Path, *folders: str, suffixes: tuple[str, ...] = ()) -> set[str]:
    """Return the files of a tree below some folders, with one of some suffixes if there are any."""
    found = (path for folder in folders for path in (tree / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(tree)) for path in found if not suffixes or path.suffix in suffixes}


def test_the_sdist_holds_the_tree(tree, sdist):
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    texts = {"CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"}
    wanted = files(tree, *SHIPPED) | texts | {"LICENSE", "META.json", "Makefile"}
    assert wanted <= held
    assert not [name for name in held if name.endswith((".so", ".pyc"))]


def test_the_installed_package_reads_the_same_parts(tree):
    """The content of a wheel is listed in pyproject: all packages, and the data of each."""
    settings = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent.relative_to(tree) for path in tree.glob("dbdp/**/__init__.py")}
    packages = {".".join(folder.parts) for folder in folders}
    assert {*settings["packages"]} - {"dbdp._sql", "dbdp._plpython"} == packages


def test_the_names_and_versions_agree():
    assert META["version"] == PROJECT["version"] == __version__ == META["provides"]["dbdp"]["version"]
    assert META["abstract"] == PROJECT["description"] == META["provides"]["dbdp"]["abstract"]
    assert META["name"] == PROJECT["name"]
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert (META["release_status"] == "stable") == any(each.endswith("Stable") for each in PROJECT["classifiers"])


def test_the_pgxn_metadata_has_what_the_specification_demands():
    required = {"name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"}
    assert required <= set(META)
    semantic = r"\d+\.\d+\.\d+(-[A-Za-z][\w-]*)?"
    assert META["meta-spec"] == {"version": "1.0.0", "url": "https://pgxn.org/meta/spec.txt"}
    assert META["license"] == "apache_2_0"
    assert META["release_status"] in ("stable", "testing", "unstable")
    assert re.fullmatch(r"[^\s/\\\x00-\x1f]{2,}", META["name"])
    for provided in META["provides"].values():
        assert {"file", "version"} <= set(provided)
        assert re.fullmatch(semantic, provided["version"])
        assert (ROOT / provided["file"]).is_file()
        assert (ROOT / provided["docfile"]).is_file()
    assert all(isinstance(META[name], str) and META[name] for name in ("abstract", "description", "generated_by"))
    assert isinstance(META["maintainer"], str | list)
    assert all(isinstance(tag, str) and 1 <= len(tag) <= 255 and not set(tag) & set("/\\") for tag in META["tags"])
    known = required | {"description", "generated_by", "no_index", "prereqs", "release_status", "resources", "tags"}
    assert not [name for name in META if name not in known and not name.lower().startswith("x_")]
    assert set(META["prereqs"]) <= {"configure", "build", "test", "runtime", "develop"}
    assert set(META["prereqs"]["runtime"]) <= {"requires", "recommends", "suggests", "conflicts"}
    for versions in META["prereqs"]["runtime"].values():
        assert all(version == 0 or re.fullmatch(semantic, version) for version in versions.values())


def test_every_path_that_the_guide_for_contributors_names_exists():
    named = set(re.findall(r"`((?:dbdp|sql|plpython|tests|docs)/[\w./-]*|\w+\.(?:json|toml|md))`", CONTRIBUTING))
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []
    words = {name: (ROOT / path).read_text() for path, name in NAMED.items() if f"`{name}`" in CONTRIBUTING}
    assert {name for name, text in words.items() if name not in text} == set()
    assert set(words) == set(NAMED.values())


NAMED = {  # what else it names, by the file that must have it
    "dbdp/learning/losses.py": "LOSSES",
    "dbdp/privacy/mechanisms.py": "MECHANISMS",
    "tests/learning/test_losses.py": "EVERY",
    "dbdp/algorithms/plan.py": "Request",
    "dbdp/algorithms/catalogue.py": "OPTIONS",
}


def test_a_clone_where_you_are_does_not_hide_dbdp(tmp_path):
    """A folder of that name would be a package without content; the control has no installation."""
    (tmp_path / "dbdp").mkdir()
    code = "import dbdp; print(dbdp.Database.__name__)"
    assert run(sys.executable, "-c", code, cwd=tmp_path) == "Database\n"
    alone = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert b"has no attribute 'Database'" in alone.stderr


@pytest.mark.slow
def test_two_builds_give_the_same_wheel_and_bill(tmp_path):
    pytest.importorskip("auditwheel", reason="the extra `release` is not installed")
    for folder in ("one", "two"):
        run(sys.executable, ROOT / "release" / "wheels.py", tmp_path / folder, cwd=tmp_path)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / each).iterdir()} for each in ("one", "two"))
    assert one == two
    (wheel,) = (name for name in one if name.endswith(".whl"))
    assert re.fullmatch(rf"dbdp-{re.escape(__version__)}-cp311-abi3-manylinux\w+\.manylinux_2_17_\w+\.whl", wheel)
    run("sha256sum", "--check", "SHA256SUMS", cwd=tmp_path / "one")
    bill = json.loads(next(text for name, text in one.items() if name.endswith(".cdx.json")))
    needed = {each["name"] for each in bill["components"] if each["scope"] == "required"}
    assert needed == {re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]}
    assert bill["metadata"]["component"]["hashes"][0]["content"] in one["SHA256SUMS"].decode()


# --- as a new user --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tree: Path, sdist: Path) -> Path:
    """The wheel, built from the sdist alone."""
    shutil.unpack_archive(sdist, tree.parent / "unpacked")
    (source,) = (tree.parent / "unpacked").iterdir()
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", source)
    (made,) = (source / "dist").glob("*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_holds_the_package_the_sql_and_the_bodies(tree, wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    code = files(tree, "dbdp", suffixes=(".py", ".pyx", ".h", ".json", ".typed"))
    parts = {f"dbdp/_{name}" for name in files(tree, "sql", "plpython") if "released" not in name}
    assert code | parts <= held
    outside = {name for name in held if not name.startswith(("dbdp/", f"dbdp-{__version__}.dist-info/"))}
    assert outside == set()
    assert len([name for name in held if name.endswith(".so")]) == 4
    assert f"dbdp-{__version__}.dist-info/licenses/LICENSE" in held


@pytest.fixture(scope="module")
def bare_server(wheel: Path) -> Iterator[Cluster]:
    """A running server that knows nothing of dbdp: the extension and its files are gone."""
    with temporary_cluster() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("drop extension dbdp cascade")
            connection.execute(
                "create table t as select i % 50 as age, i % 50 > 20 as ill from generate_series(1, 2000) i"
            )
            share = Path(connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0])
        shutil.rmtree(share / "dbdp")
        for path in (share / "extension").glob("dbdp*"):
            path.unlink()
        yield cluster


@pytest.mark.slow
def test_wheel_in_clean_environment_installs_and_trains(wheel, bare_server, tmp_path):
    """A clean environment with the wheel installs trains and uninstalls."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    run(base, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv" / "bin" / "pip", "install", "--quiet", wheel)
    brought = set(re.findall(r"^([\w-]+)==", run(tmp_path / "venv" / "bin" / "pip", "freeze"), re.MULTILINE))
    assert "numpy" in brought and not brought & {"scipy", "scikit-learn", "SQLAlchemy", "pandas", "matplotlib"}
    assert sum(path.stat().st_size for path in (tmp_path / "venv").rglob("*") if not path.is_symlink()) < MOST
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DBDP"))}

    def dbdp(*arguments: str, code: int = 0) -> str:
        command = [tmp_path / "venv" / "bin" / "dbdp", *arguments, "--url", bare_server.url]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    lacking = json.loads(dbdp("doctor", "--json", code=1))
    faults = {each["check"]: each["remedy"] for each in lacking if each["state"] == "fault"}
    assert set(faults) == {"extension files", "extension"}
    assert all(remedy.startswith("dbdp install --url ") for remedy in faults.values())
    dbdp("install")
    assert {each["state"] for each in json.loads(dbdp("doctor", "--json"))} == {"ok"}
    (tmp_path / "features.json").write_text('{"age": [0, 50]}')
    declared = ("--label", "ill", "--positive", "true", "--features", "features.json", "--epsilon", "3")
    dbdp("register", "t", "t", *declared, "--delta", "1e-5")
    model = json.loads(dbdp("train", "t", "--epsilon", "1", "--delta", "1e-6", "--json"))
    assert model["receipt"]["version"] == __version__
    assert len(json.loads(dbdp("predict", str(model["id"]), "t", "--limit", "3", "--json"))) == 3
    dbdp("uninstall", "--yes")
    lacking = json.loads(dbdp("doctor", "--json", code=1))
    assert [each["check"] for each in lacking if each["state"] == "fault"] == ["extension"]


LOWEST = """
import sys
url = sys.argv[1]
import dbdp
from dbdp.interfaces.web import serving
features = '{"age": [0, 50]}'
with dbdp.connect(url) as database:
    database.query("create table public.lowest as select i % 50 as age, i > 99 as ill from generate_series(1, 500) i")
    register = "select dbdp.register_dataset('lowest', 'public.lowest', 'ill', 'true', $1::json, 4, 1e-6)"
    try:
        database.query(register, features)
        model = dbdp.LogisticRegression(epsilon=1, delta=1e-7).fit(database, "lowest")
        assert len(model.predict([[3.0]])) == 1
        database.drop_dataset("lowest")
    finally:
        database.query("drop table public.lowest")
print("works")
"""


@pytest.mark.slow
def test_the_lowest_versions_train_predict_and_serve(wheel, server_url, tmp_path):
    """With exactly the lowest versions of what everybody needs, and of the extras sklearn and web."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    run(base, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    stated = [*PROJECT["dependencies"], *(each for extra in ("sklearn", "web") for each in EXTRAS[extra])]
    floors = {found[1]: found[2] for found in (re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", each) for each in stated)}
    (tmp_path / "lowest.txt").write_text("".join(f"{name}=={floor}\n" for name, floor in floors.items()))
    run(python, "-m", "pip", "install", "--quiet", "-c", tmp_path / "lowest.txt", f"{wheel}[sklearn,web]")
    assert "numpy==1.24.0" in run(python, "-m", "pip", "freeze")
    assert run(python, "-c", LOWEST, server_url, cwd=tmp_path) == "works\n"
