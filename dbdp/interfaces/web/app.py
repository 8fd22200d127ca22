"""The FastAPI application: pages, guards and error handlers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from dbdp.interfaces.web.accounts.connections import Server
from dbdp.interfaces.web.accounts.sign_ins import Failures, SignIns
from dbdp.interfaces.web.accounts.visits import Services
from dbdp.interfaces.web.guards import HEADERS, HOSTS, HeadAsGet, guard
from dbdp.interfaces.web.routes import forms, metrics, pages
from dbdp.interfaces.web.views.refusals import NotSignedIn, Refusal
from dbdp.interfaces.web.views.rendering import refused

_SWEEP_SECONDS = 30.0


def create(
    target: str, *, cookie: str = "dbdp_web", with_metrics: bool = False, clock: Callable[[], float] = time.monotonic
) -> FastAPI:
    """Return the application for a database server.

    Parameters
    ----------
    target : str
        URL of the server; user and password in it are not used.
    cookie : str
        Name of the cookie that holds the number of a session; ports of one machine share their cookies.
    with_metrics : bool
        Whether `/metrics` has statistics for Prometheus.
    clock : callable
        Returns the time in seconds.

    Raises
    ------
    ValueError
        If the target is not a URL.
    """
    services = Services(Server(target), SignIns(clock), Failures(clock), cookie)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_sweeping(services.sign_ins))
    app.state.services = services
    app.add_middleware(HeadAsGet)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    app.middleware("http")(guard)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    app.include_router(pages.router)
    app.include_router(forms.router)
    if with_metrics:
        app.include_router(metrics.router)
    _answer_errors(app)
    return app


def _sweeping(sign_ins: SignIns) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return an application's lifespan, which drops expired sessions and their passwords without a request."""

    async def sweep() -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            sign_ins.sweep()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(sweep())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return life


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    def _refusal(request: Request, error: Refusal) -> HTMLResponse:
        return refused(request, error)

    @app.exception_handler(NotSignedIn)
    def _not_signed_in(request: Request, error: NotSignedIn) -> HTMLResponse:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        onward = address if request.method == "GET" and request.url.path != "/" else forms.FIRST_PAGE
        return forms.sign_in_page(request, str(error), onward, status=401)

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
        response = refused(request, Refusal(500, "Something went wrong", text, "Nothing was spent."))
        response.headers.update(HEADERS)  # this response does not pass through the guard
        return response
