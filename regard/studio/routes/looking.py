"""Regard's own API to look inside: maps one by one, the numbers of one query, and what each head does (as a job)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from regard.errors import RegardError, UsageError
from regard.files import JSON
from regard.inspect.heads import heads_of
from regard.inspect.texts import Material
from regard.inspect.walk import walk as walk_through
from regard.look.map import AttentionMap
from regard.look.shown import as_file
from regard.predictor import Cancel, Predictor, Progress, Reading
from regard.studio.bodies import HeadsBody, LookBody, ScoreBody, WalkBody
from regard.studio.catalog import Loaded
from regard.studio.describe import texts_of
from regard.studio.looks import MASKED, Look, SeenLook, as_bytes
from regard.studio.refusals import Refusal, json_response
from regard.studio.routes.texts import changed, check_ids
from regard.studio.service import Service, service_of
from regard.studio.visit import visit_of
from regard.studio.work import Asked
from regard.tasks.material import material_of
from regard.tasks.translate.predictor import Translator

router = APIRouter(prefix="/api", tags=["looking"])
CHECKED_CELLS = (
    256 * 256
)  # of a map; the check of a larger one takes longer than all else: it waits until it is asked for
Form = Literal["png", "svg", "json", "csv"]
FORMS = {"png": "image/png", "svg": "image/svg+xml", "json": "application/json", "csv": "text/csv"}


@router.post("/look")
async def look(body: LookBody, request: Request) -> Response:
    """Every attention of one pass over a text: what there is of it. The maps are asked for one by one."""
    service = service_of(request)
    service.check_texts([body.text, body.second])

    def compute(predictor: Predictor, _: Asked) -> dict[str, JSON]:
        with changed(predictor, body.changes):
            found = _look(service, predictor, body)
        service.looks.keep(found)
        role = found.role_of(body.role)
        return {
            "id": found.id,
            "role": role,
            "roles": list(found.roles),
            **found.roles[role].data(),
            "by_role": {name: layers.data() for name, layers in found.roles.items()},
            "notes": list(found.notes),
            "difference": found.check() if found.cells <= CHECKED_CELLS else None,
        }

    return json_response(await service.ask(request, body.model, Predictor, "look", compute))


def _read(predictor: Predictor, body: LookBody | ScoreBody) -> Reading:
    """One pass over what is looked at, or scored."""
    if body.second is not None and predictor.second is None:
        raise UsageError(f"a second text is for translations and pairs; this is a model to {predictor.config.task}")
    return _written(predictor, body) if body.written else predictor.read(body.text, body.second)


def _look(service: Service, predictor: Predictor, body: LookBody) -> SeenLook:
    reading = _read(predictor, body)
    longest, most = max(map(len, reading.ids.values()), default=0), service.limits.look_tokens
    if longest > most:
        raise Refusal(413, f"a text of {longest:,} tokens is looked at only up to {most:,}", "shorten it")
    seen = reading.look()
    if not seen.calls:
        raise UsageError("this model has no attention to look at", seen.nothing())
    return SeenLook(seen, reading.role, reading.notes)


def _written(predictor: Predictor, body: LookBody | ScoreBody) -> Reading:
    """A text with the very tokens of its translation: cut anew, the same text may be other tokens."""
    if not isinstance(predictor, Translator):
        raise UsageError(f"written ids are of translations; this is a model to {predictor.config.task}")
    check_ids(body.written, predictor.tokenizers.target)
    return predictor.read_ids(predictor.tokenizers.source.encode(body.text), body.written)


@router.get("/look/{look_id}/difference")
async def look_difference(look_id: str, request: Request) -> Response:
    """The largest difference between outputs rebuilt from the weights and the model's own."""
    service = service_of(request)
    found = service.looks.find(look_id)
    return json_response({"difference": await service.run(request, lambda _: found.check())})


@dataclass(frozen=True)
class MapChoice:
    """Which map of a look; a layer or a head is a number from 0, or `mean`."""

    layer: str
    head: str
    row: int | None = None
    role: str | None = None
    form: Form | None = None


AskedMap = Annotated[MapChoice, Depends()]


@router.get("/look/{look_id}/{layer}/{head}")
async def look_map(look_id: str, request: Request, asked: AskedMap) -> Response:
    """One map: bytes row by row, the last for the peak; with `row`, the exact weights of that row as JSON; or a file."""
    service = service_of(request)
    found = service.looks.find(look_id)
    return await service.run(request, lambda _: map_response(found, asked))


def map_response(look: Look, asked: MapChoice) -> Response:
    """One map of a look as it goes out."""
    role, row, form = asked.role, asked.row, asked.form
    place = _place(asked.layer, "layer"), _place(asked.head, "head")
    if form is not None:
        name = f"attention-{look.role_of(role)}-{asked.layer}-{asked.head}.{form}"
        return _file(look.figure(role, *place), form, name)
    weights = look.map(role, *place)
    if row is not None:
        if not 0 <= row < len(weights):
            raise Refusal(404, f"there is no row {row}", f"there are {len(weights)}, from 0")
        return json_response({"row": row, "weights": weights[row].tolist()})
    data, peak, masked = as_bytes(weights)
    headers = {"X-Rows": str(weights.shape[0]), "X-Columns": str(weights.shape[1]), "X-Peak": repr(peak)}
    headers |= {"X-Masked": str(MASKED)} if masked else {}
    return Response(data, headers={**headers, "Cache-Control": "private, max-age=3600"}, media_type=BYTES)


def _file(shown: AttentionMap, form: Form, name: str) -> Response:
    """A map as a file to keep, as `regard look -o` writes it."""
    texts = {"json": shown.json, "csv": shown.csv}
    data = texts[form]() if form in texts else as_file(shown.figure(), f".{form}")
    return Response(data, headers={"Content-Disposition": f'attachment; filename="{name}"'}, media_type=FORMS[form])


BYTES = "application/octet-stream"


def _place(word: str, what: str) -> int | None:
    if word == "mean":
        return None
    if not word.isdecimal() or len(word) > 6:
        raise Refusal(404, f"there is no {what} {word[:40]!r}", f"a {what} is a number from 0, or mean")
    return int(word)


@router.post("/score")
async def score(body: ScoreBody, request: Request) -> Response:
    """The log-probability of each token that is predicted, and the loss: their mean, in nats, as of a model that is trained."""
    service = service_of(request)
    service.check_texts([body.text, body.second])

    def compute(predictor: Predictor, _: Asked) -> dict[str, JSON]:
        with changed(predictor, body.changes):
            found = _read(predictor, body).log_probabilities()
        return {"log_probabilities": found.tolist(), "loss": -float(found.mean())}

    return json_response(await service.ask(request, body.model, Predictor, "score", compute))


@router.post("/walk")
async def walk(body: WalkBody, request: Request) -> Response:
    """Every number of one query of one head, from its vector to what attention makes of it."""
    service = service_of(request)
    service.check_texts([body.text, body.second])

    def compute(predictor: Predictor, _: Asked) -> dict[str, object]:
        return walk_through(
            predictor, body.text, body.second, role=body.role, layer=body.layer, head=body.head, query=body.query
        ).data()

    return json_response(await service.ask(request, body.model, Predictor, "walk through", compute))


@router.post("/heads", status_code=202)
async def heads(body: HeadsBody, request: Request) -> Response:
    """Begin to measure what each head does and what the loss is without it; ask for the job then."""
    service, visit = service_of(request), visit_of(request)
    loaded = await service.run(request, lambda _: service.load(visit, body.model))

    def compute(progress: Progress, cancel: Cancel) -> JSON:
        predictor = loaded.predictor
        report = heads_of(
            predictor, _material(loaded), texts=body.texts, removal=body.removal, name=loaded.entry.name,
            progress=progress, cancel=cancel,
        )  # fmt: skip
        return report.data()

    return json_response(service.jobs.start(compute).data(), 202)


def _material(loaded: Loaded) -> Material:
    """The texts that a run was validated on; for a model that comes with Regard, those that Regard makes."""
    entry = loaded.entry
    try:
        return material_of(loaded.predictor, entry.run or entry.folder)
    except RegardError:
        if (texts := texts_of(entry)) is None:
            raise
        return material_of(loaded.predictor, entry.folder, [texts])


@router.get("/jobs/{job}")
async def job_state(job: str, request: Request) -> Response:
    """How far a job is, and its result."""
    return json_response(service_of(request).jobs.find(job).data())


@router.delete("/jobs/{job}")
async def job_stop(job: str, request: Request) -> Response:
    """Stop a job."""
    found = service_of(request).jobs.find(job)
    found.stop.set()
    return json_response(found.data())
