"""Which models there are, what each is made of, and how it cuts a text into tokens."""

from __future__ import annotations

import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from regard.files import JSON
from regard.predictor import Predictor
from regard.studio.bodies import TokensBody
from regard.studio.catalog import Entry
from regard.studio.describe import detailed, layers, listed
from regard.studio.drawn import MANY, SEEING, drawn_picture
from regard.studio.refusals import Refusal, json_response
from regard.studio.service import service_of
from regard.studio.visit import visit_of
from regard.studio.work import Asked

router = APIRouter(prefix="/api", tags=["models"])
CHUNK = 2**20  # bytes of a file that are sent at once


@router.get("/models")
async def models(request: Request) -> Response:
    """Every model that can be asked for."""
    service = service_of(request)

    def compute(_: Asked) -> list[JSON]:
        loaded = service.catalog.loaded_names()
        return [listed(entry, entry.name in loaded) for entry in service.catalog.entries().values()]

    return json_response({"models": await service.run(request, compute)})


FILE = {"schema": {"type": "string", "format": "binary", "description": "A ZIP file, whatever its kind is said to be."}}
ZIPPED = {"requestBody": {"required": True, "content": {"application/octet-stream": FILE}}}


@router.post("/models", status_code=201, openapi_extra=ZIPPED)
async def take_in(
    request: Request, name: Annotated[str, Query(description="What it is to be called here.")]
) -> Response:
    """Take in a model as a ZIP file: one that this service gave out, or a folder that `regard import` reads."""
    service, visit = service_of(request), visit_of(request)
    with service.imports.begin(name), tempfile.TemporaryDirectory(prefix="regard-sent-") as place:
        archive = Path(place) / f"{name}.zip"
        await service.imports.receive(request, archive)
        visit.deadline = time.monotonic() + service.limits.seconds
        entry = await service.run(request, lambda asked: service.imports.take(archive, name, asked.cancelled))
    return json_response(listed(entry, False), 201)


@router.get("/models/{name}")
async def model(name: str, request: Request) -> Response:
    """One model with its card, tokenizers and training; it is not loaded for that."""
    service = service_of(request)
    entry = service.catalog.entry(name)
    loaded = name in service.catalog.loaded_names()
    return json_response(await service.run(request, lambda _: detailed(entry, loaded)))


@router.get("/models/{name}/layers")
async def model_layers(name: str, request: Request) -> Response:
    """The parts of a model with their shapes, parameters and operations, as `regard summary` has them."""
    service = service_of(request)
    entry = service.catalog.entry(name)
    return json_response({"layers": await service.run(request, lambda _: layers(entry))})


@router.get("/models/{name}/bundle")
async def model_bundle(name: str, request: Request) -> Response:
    """A model as a ZIP file: the folder that `regard.load` reads."""
    service = service_of(request)
    entry = service.catalog.entry(name)
    headers = {"Content-Disposition": f'attachment; filename="{entry.name}.zip"'}
    return StreamingResponse(_zipped(entry), headers=headers, media_type="application/zip")


def _zipped(entry: Entry) -> Iterator[bytes]:
    """The files of a bundle, as they are."""
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for path in sorted(entry.folder.iterdir()):
                if path.is_file():
                    archive.write(path, f"{entry.name}/{path.name}")
        file.seek(0)
        yield from iter(lambda: file.read(CHUNK), b"")


@router.get("/models/{name}/examples/{place}")
async def example(name: str, place: int, request: Request) -> Response:
    """A drawn picture to try with a model that sees."""
    service = service_of(request)
    task = service.catalog.entry(name).task
    if task not in SEEING or not 0 <= place < MANY:
        raise Refusal(404, f"there is no picture {place} for {name}", f"there are {MANY}, from 0, for models that see")
    picture = await service.run(request, lambda _: drawn_picture(task, place))
    return Response(picture, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


@router.post("/tokens")
async def tokens(body: TokensBody, request: Request) -> Response:
    """A text as a model's tokenizer cuts it."""
    service = service_of(request)
    service.check_texts([body.text])

    def compute(predictor: Predictor, _: Asked) -> dict[str, Any]:
        pair = predictor.bundle.pair
        if pair is None:
            raise Refusal(400, f"{body.model} reads no text", param="model")
        tokenizer = pair.source if body.side == "source" else pair.target
        ids = tokenizer.encode_gaps(body.text)
        special = tokenizer.specials.all
        found = [
            {"id": token, "label": label, "special": token in special}
            for token, label in zip(ids, tokenizer.labels(ids), strict=True)
        ]
        return {"tokens": found, "unknown": ids.count(tokenizer.specials.unknown), "size": tokenizer.size}

    return json_response(await service.ask(request, body.model, Predictor, "read text", compute))
