"""The FastAPI application: pages, guards and error handlers."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dbdp.interfaces.web.guards import HEADERS, HOSTS, HeadAsGet, guard
from dbdp.interfaces.web.routes import (
    entry,
    grants,
    owner_forms,
    pages,
    prometheus,
    score_form,
    statistic_pages,
    trainings,
)
from dbdp.interfaces.web.sign_in.background import Jobs
from dbdp.interfaces.web.sign_in.database_server import DatabaseServer
from dbdp.interfaces.web.sign_in.links import Links
from dbdp.interfaces.web.sign_in.sessions import Sessions
from dbdp.interfaces.web.sign_in.visits import Services
from dbdp.interfaces.web.views.page_refusals import NoSession, Refusal
from dbdp.interfaces.web.views.rendering import page, refused


def create(
    target: str,
    *,
    cookie: str = "dbdp_web",
    clock: Callable[[], float] = time.monotonic,
    announce: Callable[[str], None] = lambda _token: None,
    metrics_token: str = "",
) -> FastAPI:
    """Return the application for a database server; every request connects as the user of the target's URL.

    Ports of one machine share their cookies, so the cookie's name tells sessions apart. `announce` gets the token of
    the next one-time link when one was used. Without a metrics_token there is no page `/metrics`.
    """
    server = DatabaseServer(target)
    services = Services(server, Sessions(clock), Links(announce), Jobs(server), cookie, metrics_token)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_stopping(services.jobs))
    app.state.services = services
    app.add_middleware(HeadAsGet)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    app.middleware("http")(guard)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    for routes in (entry, pages, trainings, owner_forms, score_form, statistic_pages, grants):
        app.include_router(routes.router)
    if metrics_token:
        app.include_router(prometheus.router)
    _answer_errors(app)
    return app


def _stopping(jobs: Jobs) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return an application's lifespan, at whose end what runs is stopped."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.stop()

    return life


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    def _refusal(request: Request, error: Refusal) -> HTMLResponse:
        return refused(request, error)

    @app.exception_handler(NoSession)
    def _no_session(request: Request, error: NoSession) -> HTMLResponse:
        return page(request, "link.html", status=401, why=str(error))

    @app.exception_handler(RequestValidationError)
    def _unreadable(request: Request, error: RequestValidationError) -> HTMLResponse:
        names = ", ".join(sorted({str(each["loc"][-1]) for each in error.errors()}))
        return refused(
            request, Refusal(400, "A field cannot be read", f"It is missing, too long or not a number: {names}.")
        )

    @app.exception_handler(HTTPException)
    def _other(request: Request, error: HTTPException) -> HTMLResponse:
        return refused(request, Refusal(error.status_code, str(error.detail), "This page does not exist."))

    @app.exception_handler(Exception)
    def _unexpected(request: Request, error: Exception) -> HTMLResponse:
        text = f"This is a fault of dbdp ({type(error).__name__}); the terminal in which dbdp web runs shows more."
        response = refused(request, Refusal(500, "Something went wrong", text, "The ledger shows what was spent."))
        response.headers.update(HEADERS)  # this response does not pass through the guard
        return response
