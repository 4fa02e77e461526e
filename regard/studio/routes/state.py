"""The state of the service for those who watch it, and the pages that describe it."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from regard.studio.documentation import documentation_page
from regard.studio.metrics import CONTENT_TYPE
from regard.studio.refusals import Refusal, json_response
from regard.studio.service import service_of

router = APIRouter(tags=["state"])
STYLE = Path(__file__).parent.parent / "templates" / "documentation.css"


@router.get("/health")
async def health() -> Response:
    """Whether the process is alive; LibreTranslate answers so."""
    return json_response({"status": "ok"})


@router.get("/ready")
async def ready(request: Request) -> Response:
    """Whether new requests are taken: not while the service stops."""
    if service_of(request).stopping:
        raise Refusal(503, "the service is stopping", "ask another one", headers={"Retry-After": "5"})
    return json_response({"status": "ready"})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus' text format."""
    return Response(service_of(request).metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The schema as a page that loads nothing from elsewhere."""
    return Response(documentation_page(request.app.openapi()), media_type="text/html; charset=utf-8")


@router.get("/static/documentation.css", include_in_schema=False)
async def style() -> Response:
    return PlainTextResponse(STYLE.read_text(encoding="utf-8"), media_type="text/css; charset=utf-8")
