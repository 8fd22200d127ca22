"""One-time links: who gets a session, for how long, and what of it is written anywhere."""

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.request import url2pathname

import psycopg
import pytest
from commands import run_here
from psycopg.conninfo import make_conninfo
from site_of_tests import PASSWORD, People, csrf_of, served, visiting, words

from dbdp.interfaces.web.serving import listen
from dbdp.interfaces.web.sign_in import links
from dbdp.interfaces.web.sign_in.database_server import DatabaseServer
from dbdp.interfaces.web.sign_in.sessions import IDLE_SECONDS, LONGEST_SECONDS, MOST_SESSIONS, Sessions
from dbdp.interfaces.web.views.page_refusals import NoSession, Refusal

pytestmark = pytest.mark.security


def token_of(site):
    return site.app.state.services.links.token


def entered(site, token):
    """Whether a new browser that opens this link gets a session."""
    with site.browser() as client:
        client.get("/", params={"token": token})
        return client.get("/datasets").status_code == 200


def test_a_link_opens_the_page_as_the_role_of_the_url(site, people):
    with site.open() as client:
        assert people.names["owner"] in client.get("/datasets").text


def test_a_link_works_once_and_the_next_one_is_announced(site):
    first = token_of(site)
    assert [entered(site, first), entered(site, first)] == [True, False]
    assert site.announced == [token_of(site)] != [first]
    assert entered(site, site.announced[0])


def test_a_link_that_many_open_at_once_lets_one_in(site):
    token = token_of(site)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: entered(site, token), range(8))) == 1


@pytest.mark.parametrize("change", [lambda _: "", lambda token: token[:-1], lambda token: token + "A", lambda _: "ö"])
def test_another_token_is_no_link_and_uses_none_up(site, change):
    token = token_of(site)
    assert not entered(site, change(token))
    assert token_of(site) == token and not site.announced


def test_a_token_is_random_and_long():
    tokens = {links.Links(print).token for _ in range(20)}
    assert len(tokens) == 20 and min(map(len, tokens)) >= 43  # 256 bits


def test_a_page_without_a_session_does_not_show_the_link(site):
    with site.browser() as client:
        answers = [client.get(path) for path in ("/datasets", "/?token=x", "/model?id=1")]
    assert [answer.status_code for answer in answers] == [401, 303, 401]
    assert "The terminal in which dbdp web runs shows a link" in words(answers[0].text)
    assert not any(token_of(site) in answer.text for answer in answers)


def test_a_link_stays_valid_while_the_server_does_not_answer(site):
    services, token = site.app.state.services, token_of(site)
    site.app.state.services = replace(services, server=DatabaseServer("postgresql:///none?host=/nonexistent"))
    assert not entered(site, token)
    site.app.state.services = services
    assert entered(site, token)


def test_the_cookie_is_random_and_for_this_page_alone(site, people):
    cookies = []
    for _ in range(2):
        with site.browser() as client:
            answer = client.get("/", params={"token": token_of(site)})
        value, *flags = answer.headers["set-cookie"].split("; ")
        assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", "path=/"}
        assert answer.headers["refresh"].startswith("0;url=/")  # by the page itself, which sends a strict cookie
        cookies.append(value)
        assert PASSWORD not in value and people.names["owner"] not in value
    assert len(set(cookies)) == 2
    assert all(len(cookie.partition("=")[2]) >= 43 for cookie in cookies)  # 256 bits


def test_opening_another_link_ends_the_browsers_former_session(site):
    with site.open() as client:
        former = dict(client.cookies)
        client.get("/", params={"token": token_of(site)})
        assert client.get("/datasets").status_code == 200
        with site.browser() as other:
            other.cookies.update(former)
            assert other.get("/datasets").status_code == 401


def test_a_superuser_sees_what_a_superuser_registered(people):
    with served(people.url) as site, site.open() as client:
        text = words(client.get("/dataset", params={"name": people.dataset}).text)
        assert people.names["owner"] in text and people.names["analyst"] in text
        assert "sees all roles' datasets" in client.get("/datasets").text.replace("&#39;", "'")
    with visiting(people, "owner") as client:
        assert "sees all roles" not in client.get("/datasets").text


def test_the_browser_gets_the_link_in_a_private_file(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(links, "open_browser", opened.append)
    with links.in_browser("http://127.0.0.1:1/?token=SECRET&x"):
        while not opened:
            pass
        file = Path(url2pathname(opened[0].removeprefix("file://")))
        assert "SECRET" not in opened[0]
        assert 'url=http://127.0.0.1:1/?token=SECRET&amp;x"' in file.read_text()
        assert stat.S_IMODE(os.stat(file.parent).st_mode) == 0o700
    assert not file.parent.exists()


def test_a_session_ends_when_it_is_idle(site):
    with site.open() as client:
        for _ in range(2):
            site.clock.now += IDLE_SECONDS - 1
            assert client.get("/models").status_code == 200
        site.clock.now += IDLE_SECONDS
        assert client.get("/models").status_code == 401
    assert len(site.app.state.services.sessions) == 0


def test_a_session_ends_when_it_is_old_however_busy(site):
    with site.open() as client:
        begun = site.clock.now
        while site.clock.now + 3000 < begun + LONGEST_SECONDS:
            site.clock.now += 3000
            assert client.get("/allowances/revoke", params={"dataset": "d", "role": "r"}).status_code == 200
        site.clock.now = begun + LONGEST_SECONDS
        assert client.get("/models").status_code == 401


def test_the_oldest_session_ends_where_there_are_too_many():
    sessions = Sessions(lambda: 0.0)
    numbers = [sessions.begin("role") for _ in range(MOST_SESSIONS + 1)]
    assert len(sessions) == MOST_SESSIONS
    assert sessions.find(numbers[1]).role == "role"
    with pytest.raises(NoSession):
        sessions.find(numbers[0])


def test_signing_out_ends_the_session(site):
    with site.open() as client:
        number = dict(client.cookies)
        answer = client.post("/sign-out", data={"csrf": csrf_of(client.get("/models").text)})
        assert "You signed out" in words(answer.text)
        client.cookies.update(number)
        assert client.get("/models").status_code == 401
    assert len(site.app.state.services.sessions) == 0


def test_a_lost_server_is_reported_and_ends_no_session(site):
    services = site.app.state.services
    with site.open() as client:
        site.app.state.services = replace(services, server=DatabaseServer("postgresql:///none?host=/nonexistent"))
        answer = client.get("/datasets")
        assert answer.status_code == 503
        assert "does not answer" in words(answer.text)
        site.app.state.services = services
        assert client.get("/datasets").status_code == 200


@pytest.fixture
def narrow(people: People) -> Iterator[str]:
    """A role that may have one connection."""
    name = people.names["rival"]
    with people.admin() as admin:
        admin.execute(f"alter role {name} connection limit 1")
        yield name
        admin.execute(f"alter role {name} connection limit -1")


@pytest.mark.usefixtures("narrow")
def test_requests_at_once_take_one_connection_of_a_session(people):
    with visiting(people, "rival") as client, ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda _: client.get("/models").status_code, range(8)))
    assert result == [200] * 8


@pytest.mark.usefixtures("narrow")
def test_a_connection_limit_is_reported_and_ends_no_session(people, monkeypatch):
    with visiting(people, "rival") as client:
        with people.login("rival") as other:
            monkeypatch.setattr("dbdp.interfaces.web.sign_in.database_server._PAUSES", ())
            answer = client.get("/models")
            monkeypatch.undo()
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "No connection is free" in words(answer.text)
            assert not other.closed
        assert client.get("/models").status_code == 200


def test_a_role_that_may_not_connect_to_the_database_sees_why(people):
    with visiting(people, "rival") as client, people.admin() as admin:
        database = admin.info.dbname
        admin.execute(f'revoke connect on database "{database}" from public')
        answer = client.get("/models")
        admin.execute(f'grant connect on database "{database}" to public')
        assert client.get("/models").status_code == 200
    assert answer.status_code == 503
    assert "grant connect" in words(answer.text)


def test_a_request_waits_for_its_session_but_not_forever(monkeypatch):
    monkeypatch.setattr("dbdp.interfaces.web.sign_in.sessions.WAIT_SECONDS", 0.01)
    sessions = Sessions(lambda: 0.0)
    session, other = (sessions.find(sessions.begin("role")) for _ in range(2))
    with session.turn(), other.turn(), pytest.raises(Refusal, match="Too much at once"), session.turn():
        pass
    with session.turn():
        pass


def test_no_secret_is_logged_even_by_a_fault(site, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    token = token_of(site)
    with site.open() as client:
        number = csrf_of(client.get("/datasets").text)

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("a fault of the tests")

        monkeypatch.setattr("dbdp.interfaces.web.routes.paged_lists.listed", broken)
        answer = client.get("/datasets")
        assert answer.status_code == 500
        assert "a fault of the tests" not in answer.text
        secrets = [PASSWORD, token, token_of(site), number, *client.cookies.values()]
    logged = [record for record in caplog.records if not record.name.startswith("http")]  # those are the client's
    told = "\n".join(logging.Formatter().format(record) for record in logged)
    assert "a fault of the tests" in told
    assert not any(secret in told for secret in secrets)
    session = next(iter(vars(site.app.state.services.sessions)["_sessions"].values()))
    assert number not in repr(session)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "localhost.example", "::ffff:0.0.0.0", ""])
def test_it_listens_on_no_address_but_this_machines_own(host):
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        listen(host, 0)


def test_a_port_that_is_in_use_is_reported_with_the_remedy():
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(OSError, match="--port"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_the_command_refuses_another_address_in_one_line():
    done = run_here("web", "--url", "postgresql:///x", "--host", "0.0.0.0")
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr


def test_a_refused_role_is_refused_before_serving(people):
    done = run_here("web", "--port", "0", "--url", make_conninfo(people.url, user="nobody_of_that_name", password="x"))
    assert done.returncode == 1
    assert "The server rejects the connection" in done.stderr and "token" not in done.stdout


def test_without_the_extra_the_command_names_what_to_install():
    without = "import sys; sys.modules['fastapi'] = None; sys.argv = ['dbdp', 'web']"
    code = f"{without}; from dbdp.interfaces.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "dbdp web needs fastapi" in done.stderr and "(the extra `web`)" in done.stderr


def test_a_changed_password_is_reported_and_ends_no_session(people):
    name = people.names["rival"]
    with people.admin() as admin, psycopg.connect(people.url_of("rival")) as login:
        if not login.pgconn.used_password:
            pytest.skip("this server lets roles in without their password")
        with visiting(people, "rival") as client:
            admin.execute(f"alter role {name} password 'another'")
            answer = client.get("/models")
            admin.execute(f"alter role {name} password '{PASSWORD}'")
            assert client.get("/models").status_code == 200
    assert answer.status_code == 503
    assert "rejects the connection" in words(answer.text)
