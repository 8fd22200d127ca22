"""The web page on a separate port, with a clock that the tests set."""

import asyncio
import logging
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import uvicorn
from fastapi import FastAPI
from psycopg.conninfo import make_conninfo
from servers import drop_datasets

from dbdp.interfaces.web.app import create
from dbdp.interfaces.web.serving import SETTINGS, listen

PASSWORD = "parole-of-the-tests"
ODD = "<script>alert('1')</script>"
FEATURES = '{"x": {"length": 3, "norm": 1}}'
ROWS = "select array[.1, .2, i / 99.0]::float8[] as x, i % 2 as y from generate_series(1, 60) as i"
GROUPS = {"owner": "dbdp_data_owner", "rival": "dbdp_data_owner", "analyst": "dbdp_analyst", "stranger": None}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class People:
    """One role of each kind, and two datasets of the owner: one of them with markup wherever it takes any."""

    def __init__(self, url: str) -> None:
        self.url = url
        suffix = secrets.token_hex(3)
        self.names = {kind: f"{kind}_{suffix}" for kind in GROUPS}
        self.names["odd"] = f"odd <b>{suffix}"
        self.dataset, self.odd = f"plain_{suffix}", f"{ODD}{suffix}"
        with self.admin() as admin:
            for kind, name in self.names.items():
                group = GROUPS.get(kind, "dbdp_analyst")
                member = f"in role {group}" if group else ""
                admin.execute(f"create role \"{name}\" login password '{PASSWORD}' {member}")
            admin.execute(f"create schema {self.schema} authorization {self.names['owner']}")
            admin.execute(f"grant usage on schema {self.schema} to dbdp_owner")
        self._register()

    @property
    def schema(self) -> str:
        return self.names["owner"]

    def admin(self) -> psycopg.Connection:
        """A session of the superuser."""
        return psycopg.connect(self.url, autocommit=True)

    def login(self, kind: str) -> psycopg.Connection:
        """A session of a role."""
        return psycopg.connect(self.url_of(kind), autocommit=True)

    def url_of(self, kind: str) -> str:
        """The URL with which a role logs in."""
        return make_conninfo(self.url, user=self.names[kind], password=PASSWORD)

    def _register(self) -> None:
        register = "select dbdp.register_dataset(%s, %s::regclass, 'y', '1', %s, 100, 1e-3, mode => 'basic')"
        with self.login("owner") as owner:
            for name, table, feature in ((self.dataset, "of_page", "x"), (self.odd, f'"{ODD}t"', f"{ODD}x")):
                owner.execute(f'create table {self.schema}.{table} ("{feature}", y) as {ROWS}')
                declared = FEATURES.replace('"x"', f'"{feature}"')
                owner.execute(register, (name, f"{self.schema}.{table}", declared))
            owner.execute("select dbdp.renew_budget(%s, %s)", (self.odd, ODD))
            for name in (self.dataset, self.odd):
                owner.execute("select dbdp.grant_training(%s, %s, epsilon => 20)", (name, self.names["odd"]))
            owner.execute("select dbdp.grant_training(%s, %s)", (self.dataset, self.names["analyst"]))
        self.models = {kind: self.train(kind) for kind in ("owner", "analyst", "odd")}

    def train(self, kind: str) -> int:
        """Train as a role; return the model's number."""
        with self.login(kind) as session:
            sql = "select model from dbdp.dp_logreg(%s, 1, algorithm => 'bolt_on', batch_size => 20, epochs => 2)"
            return session.execute(sql, (self.dataset,)).fetchone()[0]

    def close(self) -> None:
        """Leave nothing behind."""
        with self.admin() as admin:
            drop_datasets(admin, "name = any(%s)", [self.dataset, self.odd])
            for name in self.names.values():
                admin.execute(f'drop owned by "{name}" cascade; drop role "{name}"')


class Site:
    """A page that is served, and its clock."""

    def __init__(self, app: FastAPI, address: str, clock: Clock, announced: list[str]) -> None:
        self.app, self.address, self.clock, self.announced = app, address, clock, announced

    def browser(self, **headers: str) -> httpx.Client:
        """A client that sends what a browser sends, and follows no redirect."""
        headers = {"origin": self.address} | headers
        return httpx.Client(base_url=self.address, headers=headers, timeout=60, verify=False)  # no certificates to load

    @contextmanager
    def open(self) -> Iterator[httpx.Client]:
        """Give a client that has opened the link, with a session."""
        with self.browser() as client:
            answer = client.get("/", params={"token": self.app.state.services.links.token})
            assert answer.status_code == 200, answer.text
            yield client


class PromptServer(uvicorn.Server):
    """A server that ends as soon as it should, not at the next tenth of a second."""

    async def main_loop(self) -> None:
        """Look for the end without a pause to speak of."""
        while not await self.on_tick(0):
            await asyncio.sleep(0.005)


@contextmanager
def served(url: str, cookie: str = "dbdp_web", *, metrics_token: str = "") -> Iterator[Site]:
    """Serve the page of a server for a while."""
    clock, listening, announced = Clock(), listen("127.0.0.1", 0), []
    app = create(url, cookie=cookie, clock=clock, announce=announced.append, metrics_token=metrics_token)
    server = PromptServer(uvicorn.Config(app, log_config=None, **SETTINGS))
    logging.getLogger("uvicorn").setLevel(logging.DEBUG)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.002)
    yield Site(app, f"http://127.0.0.1:{listening.getsockname()[1]}", clock, announced)
    server.should_exit = True
    thread.join()


@contextmanager
def visiting(people: People, kind: str) -> Iterator[httpx.Client]:
    """Serve the page as a role, and give a client with a session."""
    with served(people.url_of(kind)) as site, site.open() as client:
        yield client


def csrf_of(page: str) -> str:
    """Return the CSRF token in the forms of a page."""
    match = re.search(r'name="csrf" value="([^"]+)"', page)
    assert match
    return match[1]


def words(page: str) -> str:
    """Return the text of a page's content."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<main")[2]))
