"""The extension's files laid without a server, as packages of distributions need it, and the check of a server."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from servers import temporary_cluster

from dbdp import __version__
from dbdp.deployment.extension.layout import lay
from dbdp.deployment.extension.source import InstallError

ROOT = Path(__file__).parents[2]
SHARE = Path("/usr/share/postgresql/99")


def make(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-C", str(ROOT), f"PYTHON={sys.executable}", *map(str, arguments)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for the root of a file system, with the files but for NumPy and FLINT."""
    root = tmp_path_factory.mktemp("root")
    written = lay(SHARE, root, with_libraries=False)
    assert all(path.exists() and root in path.parents for path in written)
    return root


def test_files_are_laid_without_a_server_or_its_folders(laid):
    below = laid / SHARE.relative_to("/")
    names = {path.name for path in (below / "extension").iterdir()}
    assert {"dbdp.control", f"dbdp--{__version__}.sql"} < names
    packages = below / "dbdp" / __version__
    assert packages.is_symlink() and not packages.readlink().is_absolute()
    assert (packages / "dbdp" / "controller" / "requests.py").is_file()
    assert list((packages / "dbdp" / "learning" / "compiled").glob("_kernel*.so"))
    assert not (packages / "numpy").exists()


def test_no_laid_file_names_the_place_of_its_packaging(laid):
    """Also not the bytecode, whose file names tracebacks show."""
    control = next(laid.rglob("dbdp.control")).read_text()
    assert f"module_pathname = '{SHARE}/dbdp/{__version__}'" in control
    files = [path for path in laid.rglob("*") if path.is_file() and path.suffix != ".so"]
    assert len(files) > 300
    assert [path for path in files if str(laid).encode() in path.read_bytes()] == []


def test_laid_files_are_readable_for_the_servers_account(laid):
    for path in laid.rglob("*"):
        mode = path.stat().st_mode & 0o777
        assert mode & 0o444 == 0o444 and not mode & 0o022, path


def test_a_place_that_cannot_hold_the_files_is_refused(tmp_path):
    with pytest.raises(InstallError, match="must be an absolute path, as pg_config --sharedir prints it"):
        lay(Path("share"), tmp_path)
    (tmp_path / "usr").write_text("a file")
    with pytest.raises(InstallError, match=r"cannot be written .*set DESTDIR"):
        lay(SHARE, tmp_path, with_libraries=False)


@pytest.mark.usefixtures("server_machine")
def test_installcheck_trains_on_a_running_server(server_url):
    done = make("installcheck", DBDP_TEST_URL=server_url)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"installcheck: dbdp {re.escape(__version__)} on PostgreSQL .* refuses", done.stdout)


def test_installcheck_fails_where_no_server_is(tmp_path):
    done = make("installcheck", PGHOST=str(tmp_path), DBDP_TEST_URL="")
    assert done.returncode != 0
    assert "installcheck: dbdp" not in done.stdout


@pytest.mark.slow
def test_make_install_serves_a_server_that_had_no_dbdp(tmp_path):
    """The files come from the build alone, and `make uninstall` takes them back."""
    with temporary_cluster() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("drop extension dbdp cascade")
            share = Path(connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()[0])
        shutil.rmtree(share / "dbdp")
        for path in (share / "extension").glob("dbdp*"):
            path.unlink()
        assert make("installcheck", DBDP_TEST_URL=cluster.url).returncode != 0
        done = make("install", f"SHAREDIR={share}")
        assert done.returncode == 0, done.stderr[-2000:]
        done = make("installcheck", DBDP_TEST_URL=cluster.url)
        assert done.returncode == 0, done.stderr
        assert make("uninstall", f"SHAREDIR={share}").returncode == 0
        assert not (share / "dbdp").exists() and list((share / "extension").glob("dbdp*")) == []
