"""Requests of browsers that have a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from psycopg.errors import Diagnostic

from dbdp.interfaces.python.client.database import Database
from dbdp.interfaces.web.accounts.connections import Server
from dbdp.interfaces.web.accounts.jobs import Jobs
from dbdp.interfaces.web.accounts.links import Links
from dbdp.interfaces.web.accounts.sessions import Session, Sessions
from dbdp.interfaces.web.guards import check_form
from dbdp.interfaces.web.views.rendering import page
from dbdp.sessions.errors import PREFIX


@dataclass(frozen=True)
class Services:
    """The state that all requests of an application share.

    Attributes
    ----------
    server : Server
        The database server.
    sessions : Sessions
        The sessions.
    links : Links
        The one-time link.
    jobs : Jobs
        The trainings and scores.
    cookie : str
        Name of the cookie that holds the number of a session.
    metrics_token : str
        What a request of `/metrics` must send.
    """

    server: Server
    sessions: Sessions
    links: Links
    jobs: Jobs
    cookie: str
    metrics_token: str


def services_of(request: Request) -> Services:
    """Return the shared state of a request's application."""
    services: Services = request.app.state.services
    return services


def _warning_in(notice: Diagnostic) -> Iterator[str]:
    """Yield the text of a message of the server that is a warning."""
    if notice.severity_nonlocalized == "WARNING":
        yield (notice.message_primary or "").removeprefix(PREFIX)


@dataclass(frozen=True)
class Visit:
    """A request of a browser, with its session."""

    request: Request
    session: Session

    @contextmanager
    def database(self, *, writing: bool = False) -> Iterator[Database]:
        """Yield a connection for this request, one at a time per session. The next page shows the server's warnings."""
        warnings: list[str] = []
        with self.session.turn():
            with services_of(self.request).server.acting(writing=writing) as database:
                database.connection.add_notice_handler(lambda notice: warnings.extend(_warning_in(notice)))
                yield database
            self.session.warnings += warnings

    def page(self, template: str, **values: Any) -> HTMLResponse:
        """Render a template for this request."""
        return page(self.request, template, **values)


def _visit(request: Request) -> Visit:
    services = services_of(request)
    request.state.session = services.sessions.find(request.cookies.get(services.cookie))
    return Visit(request, request.state.session)


Visitor = Annotated[Visit, Depends(_visit)]


async def _sent(visit: Visitor) -> dict[str, str]:
    """Return the fields of a form, after the check of its number."""
    form = await visit.request.form()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    check_form(visit.session, fields.pop("csrf", ""))
    return fields


Sent = Annotated[dict[str, str], Depends(_sent)]


def jobs_of(visit: Visit) -> Jobs:
    """Return the page's trainings and scores."""
    return services_of(visit.request).jobs
