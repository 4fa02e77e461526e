"""Hugging Face's `{inputs, parameters}`, as `InferenceClient(model="http://.../hf/NAME")` sends it; the model says the task.

A picture comes as bytes, or in base64 under `inputs` or `image`. Answers are those of their inference API.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from regard.config import Tables
from regard.data.pictures.decode import read_picture
from regard.files import JSON
from regard.studio.bodies import (
    MULTIPART,
    Body,
    Seed,
    as_object,
    checked,
    described_body,
    fields_of,
    from_base64,
    media_type,
)
from regard.studio.refusals import Refusal, as_refusal, json_response
from regard.studio.routes.texts import sent_event
from regard.studio.service import Service, service_of
from regard.studio.visit import visit_of
from regard.studio.work import Asked
from regard.tasks.answer.predictor import QuestionAnswerer
from regard.tasks.caption.predictor import Captioner
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.classify_pictures.predictor import PictureLabeller
from regard.tasks.fill.predictor import Filled, Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated

router = APIRouter(prefix="/hf", tags=["Hugging Face"])
IGNORED = (
    "watermark",
    "clean_up_tokenization_spaces",
    "truncation",
    "decoder_input_details",
)  # they change no answer here


class Parameters(Body):
    """Every parameter that any of the tasks knows; one that a task does not know is refused by it."""

    top_k: int | None = Field(None, ge=1)
    function_to_apply: str | None = None
    targets: list[str] | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    generate_parameters: dict[str, Any] | None = None
    max_new_tokens: int | None = Field(None, ge=0)
    do_sample: bool | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: Seed | None = None
    stop: list[str] | None = None
    return_full_text: bool | None = None
    details: bool | None = None
    watermark: bool | None = None
    clean_up_tokenization_spaces: bool | None = None
    truncation: str | None = None
    decoder_input_details: bool | None = None

    def only(self, *names: str) -> None:
        """Refuse parameters that a task does not know."""
        for name, value in self:
            if value is not None and name not in names and name not in IGNORED:
                raise Refusal(400, f"the following parameters are not known by this model: {name}", param=name)


class HuggingFaceBody(Body):
    inputs: Any = Field(None, description="A text, several, or a picture in base64.")
    parameters: Parameters = Parameters()
    stream: bool | None = None
    question: str | None = Field(None, max_length=2000)
    image: str | None = Field(None, description="A picture in base64, of a question.")
    options: dict[str, Any] | None = None
    normalize: bool | None = None
    prompt_name: None = None
    truncate: bool | None = None
    truncation_direction: str | None = None
    dimensions: int | None = None
    encoding_format: str | None = None

    def texts(self) -> list[str]:
        found = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
            raise Refusal(400, "inputs is a text, or a list of texts", param="inputs")
        return found

    def text(self) -> str:
        if not isinstance(self.inputs, str):
            raise Refusal(400, "inputs is one text here", param="inputs")
        return self.inputs


@router.post("/{name}", openapi_extra=described_body(HuggingFaceBody, picture="image"))
async def infer(name: str, request: Request) -> Response:
    """Ask a model of any task."""
    service = service_of(request)
    task = (await service.run(request, lambda _: service.catalog.entry(name))).task
    body, picture = await _asked(request, task in SEEING)
    if task in SEEING:
        return await SEEING[task](service, request, name, body, picture)
    if task not in READING:
        raise Refusal(400, f"models to {task} are not served in this form", param="model")
    return await READING[task](service, request, name, body)


async def _asked(request: Request, seeing: bool) -> tuple[HuggingFaceBody, bytes]:
    """Read the request, and for a model that sees its picture: in base64, as a file of a form, or as the whole body."""
    data = await request.body()
    if media_type(request) == MULTIPART:  # curl -d says "urlencoded" of anything
        fields = await fields_of(request)
        files = [name for name, value in fields.items() if isinstance(value, bytes)]
        picture = b"".join(fields.pop(name) for name in files[:1])
        if "parameters" in fields:
            fields["parameters"] = as_object(str(fields["parameters"]).encode())
        body = checked(HuggingFaceBody, fields)
        return body, picture or (from_base64(body.image or body.inputs) if seeing else b"")
    if seeing and not data.lstrip().startswith(b"{"):  # their client names no kind of a picture's bytes
        return HuggingFaceBody(), data
    body = checked(HuggingFaceBody, as_object(data))
    return body, from_base64(body.image or body.inputs) if seeing else b""


# --- Texts


async def _classify(service: Service, request: Request, name: str, body: HuggingFaceBody) -> Response:
    body.parameters.only("top_k", "function_to_apply")
    _only_softmax(body.parameters)
    texts = body.texts()
    service.check_texts(texts)

    def compute(classifier: TextClassifier, asked: Asked) -> list[JSON]:
        found = classifier.classify(texts, cancel=asked.cancelled)
        return [_labels(each.probabilities, body.parameters.top_k) for each in found]

    return json_response(await service.ask(request, name, TextClassifier, "classify", compute))


def _labels(probabilities: dict[str, float], top: int | None, name: str = "label") -> list[JSON]:
    return [{name: label, "score": share} for label, share in [*probabilities.items()][:top]]


def _only_softmax(parameters: Parameters) -> None:
    if parameters.function_to_apply not in (None, "softmax"):
        raise Refusal(400, "only softmax is applied here", param="function_to_apply")


async def _fill(service: Service, request: Request, name: str, body: HuggingFaceBody) -> Response:
    """A gap that is filled; a request at the level of the root, as for vectors, asks for vectors."""
    texts = body.texts()
    service.check_texts(texts)
    if any("[MASK]" in text or "<mask>" in text for text in texts):
        body.parameters.only("top_k")

        def guess(filler: Filler, asked: Asked) -> list[JSON]:
            filled = [filler.fill(text, body.parameters.top_k or 5, asked.cancelled) for text in texts]
            return [_guesses(filler, each) for each in filled]

        found = await service.ask(request, name, Filler, "fill", guess)
        return json_response(found[0] if isinstance(body.inputs, str) else found)

    def vectors(filler: Filler, asked: Asked) -> list[JSON]:
        numbers: list[JSON] = filler.vectors(texts, cancel=asked.cancelled).tolist()
        return numbers

    return json_response(await service.ask(request, name, Filler, "give vectors", vectors))


def _guesses(filler: Filler, found: Filled) -> list[JSON]:
    """The guesses for each gap, each with the text that it makes while other gaps stay open; one gap's by themselves."""
    tokenizer = filler.tokenizer
    ids, mask = tokenizer.encode_gaps(found.source), tokenizer.specials.mask
    places = [place for place, token in enumerate(ids) if token == mask]
    gaps: list[JSON] = []
    for place, guesses in zip(places, found.gaps, strict=True):
        rows: list[JSON] = []
        for guess in guesses:
            text = tokenizer.decode([*ids[:place], guess.id, *ids[place + 1 :]])
            rows.append({"score": guess.probability, "token": guess.id, "token_str": guess.token, "sequence": text})
        gaps.append(rows)
    only = gaps[0] if len(gaps) == 1 else gaps
    assert isinstance(only, list)
    return only


async def _translate(service: Service, request: Request, name: str, body: HuggingFaceBody) -> Response:
    body.parameters.only("src_lang", "tgt_lang")
    asked = (body.parameters.src_lang, body.parameters.tgt_lang)
    languages = (await service.run(request, lambda _: service.catalog.entry(name))).languages
    if asked != (None, None) and asked != languages:
        raise Refusal(400, f"{name} translates from {' to '.join(languages or ())}", param="src_lang")
    found = await service.translate(request, name, body.texts(), {})
    return json_response([{"translation_text": each.text} for each in found])


async def _generate(service: Service, request: Request, name: str, body: HuggingFaceBody) -> Response:
    body.parameters.only(
        "max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "seed", "stop", "return_full_text", "details"
    )
    prompt, options = body.text(), _options(body.parameters)
    service.check_texts([prompt])
    service.check_options(options)
    if body.stream:
        return await _streamed(service, request, name, body, options)
    found = (await service.generate(request, name, [prompt], body.parameters.stop or [], options))[0]

    def compute(generator: Generator, _: Asked) -> JSON:
        return [_generated(generator, found, body.parameters)]

    return json_response(await service.ask(request, name, Generator, "generate", compute))


def _options(parameters: Parameters) -> Tables:
    """Greedy unless something of a draw is asked for, as there."""
    longest: Tables = {"max_length": parameters.max_new_tokens or 100, "n_best": 1}
    draws = parameters.do_sample or parameters.temperature or parameters.top_p or parameters.top_k
    if parameters.do_sample is False or not draws:
        return {**longest, "sample": False, "beam": 1}
    given = {name: getattr(parameters, name) for name in ("temperature", "top_p", "top_k", "seed")}
    shape = {name: value for name, value in given.items() if value is not None}
    return {**longest, "sample": True, "seed": secrets.randbits(62), "temperature": 1.0, **shape}


def _generated(generator: Generator, found: Generated, parameters: Parameters) -> dict[str, JSON]:
    text = found.prompt + found.text if parameters.return_full_text else found.text
    if not parameters.details:
        return {"generated_text": text}
    tokens = _tokens(generator, found)
    details: dict[str, JSON] = {
        "finish_reason": _reason(found, parameters.stop or []),
        "generated_tokens": len(found.ids),
        "seed": parameters.seed,
        "prefill": [],
        "tokens": list(tokens),
    }
    return {"generated_text": text, "details": details}


def _reason(found: Generated, stop: list[str]) -> str:
    if not found.finished:
        return "length"
    return "stop_sequence" if stop and len(found.token_log_probabilities) == len(found.ids) else "eos_token"


def _tokens(generator: Generator, found: Generated) -> list[dict[str, JSON]]:
    logs, special = found.token_log_probabilities, generator.tokenizer.specials.all
    named = zip(found.ids, found.tokens, logs, strict=False)
    return [{"id": i, "text": label, "logprob": log, "special": i in special} for i, label, log in named]


async def _streamed(service: Service, request: Request, name: str, body: HuggingFaceBody, options: Tables) -> Response:
    """Pieces as they become certain; each stands as one token, as its client expects."""
    visit, prompt, stop = visit_of(request), body.text(), body.parameters.stop or []

    def begin(asked: Asked) -> Iterator[dict[str, JSON]]:
        generator = service.decoding.generator(visit, name)
        visit.read = len(generator.tokenizer.encode(prompt))
        for index, event in enumerate(service.decoding.stream(generator, prompt, stop, options, asked), start=1):
            if isinstance(event, Generated):
                visit.written = len(event.ids)
                token: dict[str, JSON] = {
                    "id": generator.tokenizer.specials.end,
                    "text": "",
                    "logprob": 0.0,
                    "special": True,
                }
                details: dict[str, JSON] = {"finish_reason": _reason(event, stop), "generated_tokens": len(event.ids)}
                details |= {"seed": body.parameters.seed, "input_length": visit.read}
                yield {"index": index, "token": token, "generated_text": event.text, "details": details}
            else:
                piece: dict[str, JSON] = {"id": -1, "text": event.text, "logprob": 0.0, "special": False}
                yield {"index": index, "token": piece, "generated_text": None, "details": None}

    events = await service.work.stream(visit, begin)
    return StreamingResponse(_lines(events), media_type="text/event-stream")


async def _lines(events: AsyncIterator[dict[str, JSON]]) -> AsyncIterator[bytes]:
    try:
        async with aclosing(events):  # type: ignore[type-var]
            async for event in events:
                yield sent_event(event)
    except Exception as error:
        yield sent_event({"error": as_refusal(error).sentence(), "error_type": "generation"})


# --- Pictures


async def _classify_picture(
    service: Service, request: Request, name: str, body: HuggingFaceBody, picture: bytes
) -> Response:
    body.parameters.only("top_k", "function_to_apply")
    _only_softmax(body.parameters)

    def compute(labeller: PictureLabeller, asked: Asked) -> JSON:
        found = labeller.classify(read_picture(picture), cancel=asked.cancelled)
        return _labels(found.probabilities, body.parameters.top_k or 5)

    return json_response(await service.ask(request, name, PictureLabeller, "classify pictures", compute))


async def _caption(service: Service, request: Request, name: str, body: HuggingFaceBody, picture: bytes) -> Response:
    body.parameters.only("max_new_tokens")
    longest = body.parameters.max_new_tokens
    options: Tables = {} if longest is None else {"max_length": longest}
    service.check_options(options)

    def compute(captioner: Captioner, asked: Asked) -> JSON:
        found = captioner.caption(read_picture(picture), cancel=asked.cancelled, **options)
        return [{"generated_text": found.text}]

    return json_response(await service.ask(request, name, Captioner, "caption", compute))


async def _answer(service: Service, request: Request, name: str, body: HuggingFaceBody, picture: bytes) -> Response:
    body.parameters.only("top_k")
    if body.question is None:
        raise Refusal(400, "there is no question", "send it beside the picture, as question", param="question")
    question = body.question

    def compute(answerer: QuestionAnswerer, asked: Asked) -> JSON:
        found = answerer.answer(read_picture(picture), question, cancel=asked.cancelled)
        return _labels(found.probabilities, body.parameters.top_k or 5, "answer")

    return json_response(await service.ask(request, name, QuestionAnswerer, "answer", compute))


READING: dict[str, Callable[[Service, Request, str, HuggingFaceBody], Awaitable[Response]]] = {
    "classify": _classify,
    "fill": _fill,
    "translate": _translate,
    "generate": _generate,
}
SEEING: dict[str, Callable[[Service, Request, str, HuggingFaceBody, bytes], Awaitable[Response]]] = {
    "classify-pictures": _classify_picture,
    "caption": _caption,
    "answer": _answer,
}
