"""Targets that are not a URL: reported with the remedy, and never quoted, since they may contain a password."""

import sys
import traceback
from itertools import product

import pytest

import dbdp
from dbdp.interfaces.cli.main import main
from dbdp.interfaces.web.sign_in.database_server import DatabaseServer
from dbdp.sessions.connections import URL_VARIABLE, libpq_url

pytestmark = pytest.mark.security
MALFORMED = [
    "postgresql+psycopg2://bob:S3CRET@localhost/db",
    "postgres+psycopg://bob:S3CRET@localhost/db",
    "https://bob:S3CRET@localhost/db",
    "bob:S3CRET@localhost/db",
    "bob:S3=CRET@localhost/db",
    "postgresql://bob:100%S3CRET@localhost/db",
    "postgresql://bob:S3CRET@[broken",
    "postgresql://bob:x@S3CRET@localhost/db",  # libpq would look for a host S3CRET@localhost,
    "postgresql://bob:1/S3CRET@localhost/db",  # for a database S3CRET@localhost/db,
    "postgresql://localhost:S3CRET/db",  # and for a port S3CRET
    "postgresql:///db?passwort=S3CRET",
    "host=localhost password=x S3CRET",
]
WELL_FORMED = [
    "postgresql://bob:x%40y%2Fz@localhost:5432/db",
    "postgresql://bob@[::1]:5432,localhost:5433/db",
    "postgresql://%40abstract/a%40b",
    "postgresql:///db?user=bob@example.org&host=/tmp",
    "host=/tmp user=a@b dbname=c@d",
    "",
]


def test_a_malformed_url_is_refused_without_its_password():
    for url, opened in product(MALFORMED, (dbdp.connect, DatabaseServer)):
        with pytest.raises(ValueError, match="not a libpq URL: write postgresql://user@host:port/database") as error:
            opened(url)
        message = "".join(traceback.format_exception(error.value))
        assert "S3" not in message and "CRET" not in message


@pytest.mark.parametrize(
    "command",
    [["datasets"], ["train", "patients", "--epsilon", "1"], ["web", "--port", "0"], ["doctor"], ["install"]],
    ids=lambda command: command[0],
)
def test_no_command_prints_the_password_of_a_malformed_url(command, monkeypatch, capfd):
    for url, is_option in product(MALFORMED, (True, False)):
        given = ["--url", url] if is_option or command == ["install"] else []
        monkeypatch.setattr(sys, "argv", ["dbdp", *command, *given])
        monkeypatch.setenv(URL_VARIABLE, url)
        with pytest.raises(SystemExit) as ended:
            main()
        output = "".join(capfd.readouterr())
        assert ended.value.code == 1
        assert "not a libpq URL" in output
        assert "S3" not in output and "CRET" not in output


def test_what_libpq_reads_is_left_as_it_is():
    assert list(map(libpq_url, WELL_FORMED)) == WELL_FORMED
