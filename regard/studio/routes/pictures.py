"""Regard's own API for models that see: a picture in a form or in base64, results with where the model looked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from regard.config import Tables
from regard.data.pictures.decode import read_picture
from regard.errors import UsageError
from regard.files import JSON
from regard.predictor import Predictor
from regard.studio.bodies import PictureBody, QuestionBody, checked, described_body, picture_fields
from regard.studio.refusals import json_response
from regard.studio.service import service_of
from regard.studio.work import Asked
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify_pictures.predictor import PictureLabeller

router = APIRouter(prefix="/api", tags=["pictures"])
P = TypeVar("P", bound=Predictor)
B = TypeVar("B", bound=PictureBody)


async def _seen(
    request: Request, body: type[B], kind: type[P], does: str, compute: Callable[[P, B, np.ndarray, Asked], JSON]
) -> Response:
    """Read a picture and what is asked of it, and ask. Pixels are decoded in the thread: it is work, and may be refused."""
    service = service_of(request)
    fields, data = await picture_fields(request)
    asked_for = checked(body, fields)
    service.check_options({"beam": asked_for.beam, "n_best": asked_for.n_best})

    def look(predictor: P, asked: Asked) -> JSON:
        return compute(predictor, asked_for, read_picture(data), asked)

    return json_response(await service.ask(request, asked_for.model, kind, does, look))


@router.post("/classify-pictures", openapi_extra=described_body(PictureBody, picture="picture"))
async def classify_pictures(request: Request) -> Response:
    """The label of a picture, and where the model looked."""

    def compute(labeller: PictureLabeller, body: PictureBody, pixels: np.ndarray, asked: Asked) -> JSON:
        found = labeller.classify(pixels, cancel=asked.cancelled).data()
        if not body.attention:
            return found
        try:
            return {**found, "attention": labeller.look(pixels, body.layer, body.head).data()}
        except UsageError:
            if body.layer is not None or body.head is not None:
                raise
            return {**found, "attention": None}  # a network that looks nowhere in particular

    return await _seen(request, PictureBody, PictureLabeller, "classify pictures", compute)


@router.post("/caption", openapi_extra=described_body(PictureBody, picture="picture"))
async def caption(request: Request) -> Response:
    """A caption, and where the model looked at each word."""

    def compute(captioner: Captioner, body: PictureBody, pixels: np.ndarray, asked: Asked) -> JSON:
        options: Tables = {name: value for name in ("beam", "n_best") if (value := getattr(body, name)) is not None}
        found = captioner.caption(pixels, cancel=asked.cancelled, **options)
        if body.attention:
            try:
                found = replace(found, attention=captioner.look(pixels, body.layer, body.head, **options))
            except UsageError:
                if body.layer is not None or body.head is not None:
                    raise
        return found.data()

    return await _seen(request, PictureBody, Captioner, "caption", compute)


@router.post("/answer", openapi_extra=described_body(QuestionBody, picture="picture"))
async def answer(request: Request) -> Response:
    """The answer to a question about a picture, and where each word of the question looked."""

    def compute(answerer: QuestionAnswerer, body: QuestionBody, pixels: np.ndarray, asked: Asked) -> JSON:
        found = answerer.answer(pixels, body.question, cancel=asked.cancelled)
        if body.attention:
            found = replace(found, attention=answerer.look(pixels, body.question, body.layer, body.head))
        return found.data()

    return await _seen(request, QuestionBody, QuestionAnswerer, "answer", compute)
