"""The application: every route, errors in the form of their API, and the guard around all of it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from regard import __version__, look
from regard.errors import RegardError
from regard.studio.config import ServeConfig
from regard.studio.guard import Guard, Log, log_line
from regard.studio.refusals import Failure, as_refusal, refused
from regard.studio.routes import huggingface, libretranslate, looking, models, openai, pictures, runs, state, texts
from regard.studio.service import Service

STATIC = Path(__file__).parent / "static"
FIGURES = Path(look.__file__).parent / "static"  # one theme for the figures and the page
AT = "at-"  # before the version, in the address of the page's files
ROUTERS = (models, texts, pictures, looking, runs, libretranslate, openai, huggingface, state)
REFUSED = {400: "what was asked is wrong", 404: "there is no such thing", 413: "too much", 422: "a field is wrong",
           503: "too many requests wait", 504: "there was no answer in time"}  # fmt: skip


def make_app(config: ServeConfig, log: Log = log_line) -> Guard:
    """The whole service as one ASGI application."""
    config.check()
    service = Service(config)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": Failure, "description": what} for status, what in REFUSED.items()
    }
    app = FastAPI(
        title="Regard", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, responses=responses
    )
    app.state.service = service
    for each in ROUTERS:
        app.include_router(each.router)
    for kind in (RegardError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _refuse)
    if config.page:
        _add_page(app)
    return Guard(app, config, service.metrics, log)


async def _refuse(request: Request, error: Exception) -> Response:
    return refused(request.url.path, as_refusal(error))


def _add_page(app: FastAPI) -> None:
    """The studio's page, if it is there."""
    if not (STATIC / "index.html").exists():
        return

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        text = (STATIC / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace("static/", f"static/{AT}{_version()}/"), headers={"Cache-Control": "no-cache"})

    for place, kept in ((f"/static/{AT}{{version}}", "private, max-age=31536000, immutable"), ("/static", "no-cache")):
        app.mount(f"{place}/figures", PageFiles(FIGURES, kept))
        app.mount(place, PageFiles(STATIC, kept))


class PageFiles(StaticFiles):
    """Files of the page. Below a name that changes when one of them does, a browser asks for each once."""

    def __init__(self, folder: Path, kept: str) -> None:
        super().__init__(directory=folder)
        self.kept = kept

    def file_response(self, *given: Any, **named: Any) -> Response:
        response = super().file_response(*given, **named)
        response.headers["Cache-Control"] = self.kept
        return response


def _version() -> str:
    """A few letters that stand for all files of the page; they are few and small."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in (STATIC, FIGURES) for file in folder.rglob("*.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
