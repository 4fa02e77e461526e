"""OpenAI's API for the programs that speak it: /v1/models, /v1/completions, /v1/embeddings.

Language models complete, models that fill gaps give embeddings. A chat needs a model that was trained to hold one, and
Regard's were not: it is refused in the form that their clients show.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from regard.config import Tables
from regard.files import JSON
from regard.inspect.writing import WrittenToken, tokens_written
from regard.studio.bodies import Body, Name, Seed
from regard.studio.refusals import OPENAI, Refusal, as_refusal, error_data, json_response
from regard.studio.routes.texts import sent_event
from regard.studio.service import Service, service_of
from regard.studio.visit import visit_of
from regard.studio.work import Asked
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated

router = APIRouter(prefix="/v1", tags=["OpenAI"])
UNSUPPORTED: dict[str, tuple[object, ...]] = {"suffix": (None,), "best_of": (None,), "logit_bias": (None, {})}
PENALTIES = ("presence_penalty", "frequency_penalty")


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CompletionBody(Body):
    """A request of /v1/completions. What changes nothing here is taken; what would is refused."""

    model: Name
    prompt: str | list[str] | list[int] | list[list[int]] = Field("", description="A text, or several.")
    max_tokens: int | None = Field(16, ge=0)
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: int | None = Field(1, ge=1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: bool | None = False
    stop: str | list[str] | None = None
    seed: Seed | None = None
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    best_of: int | None = Field(None, ge=1)
    logit_bias: dict[str, float] | None = None
    suffix: str | None = None
    user: str | None = None

    def check(self) -> None:
        for name, neutral in UNSUPPORTED.items():
            if getattr(self, name) not in (*neutral, self.n if name == "best_of" else None):
                raise Refusal(400, f"{name} is not supported by this service", "leave it out", param=name)
        for name in PENALTIES:
            if getattr(self, name):
                raise Refusal(400, f"{name} is not supported by this service", "leave it out, or say 0", param=name)
        if self.stream and (len(self.prompts()) > 1 or (self.n or 1) > 1):
            raise Refusal(400, "a stream has one prompt and one completion", "leave out n, or stream", param="stream")
        if len(self.stops()) > 4 or not all(self.stops()):
            raise Refusal(400, "stop is up to 4 strings, none of them empty", param="stop")

    def prompts(self) -> list[str]:
        found = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if not found or not all(isinstance(each, str) for each in found):
            raise Refusal(400, "a prompt is a text here, not ids of tokens", "send the text", param="prompt")
        return [str(each) for each in found]

    def stops(self) -> list[str]:
        return [] if self.stop is None else [self.stop] if isinstance(self.stop, str) else list(self.stop)

    def options(self) -> Tables:
        """As a search is asked: a temperature of 0 is greedy, anything else draws, from a seed that nobody knows."""
        longest = 16 if self.max_tokens is None else self.max_tokens
        if self.temperature == 0:
            return {"sample": False, "beam": 1, "n_best": 1, "max_length": longest}
        seed = secrets.randbits(62) if self.seed is None else self.seed
        shape = {"temperature": self.temperature or 1.0, "top_p": self.top_p or 1.0, "top_k": 0, "min_p": 0.0}
        return {"sample": True, "beam": 1, "n_best": self.n or 1, "seed": seed, "max_length": longest, **shape}


class EmbeddingBody(Body):
    model: Name
    input: str | list[str] | list[int] | list[list[int]] = Field(description="A text, or several.")
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None
    user: str | None = None

    def texts(self) -> list[str]:
        found = [self.input] if isinstance(self.input, str) else list(self.input)
        if not found or not all(isinstance(each, str) and each for each in found):
            raise Refusal(400, "input is a text that is not empty, or several", param="input")
        return [str(each) for each in found]


@router.get("/models")
async def models(request: Request) -> Response:
    """The models that complete texts or give embeddings."""
    service = service_of(request)
    entries = await service.run(request, lambda _: service.catalog.of_task("generate", "fill"))
    return json_response({"object": "list", "data": [_model(each.name, each.changed) for each in entries]})


@router.get("/models/{name}")
async def model(name: str, request: Request) -> Response:
    """One of them."""
    service = service_of(request)
    entry = await service.run(request, lambda _: service.catalog.entry(name))
    return json_response(_model(entry.name, entry.changed))


def _model(name: str, changed: float) -> dict[str, JSON]:
    return {"id": name, "object": "model", "created": int(changed), "owned_by": "regard"}


@router.post("/chat/completions")
async def chat(request: Request) -> Response:
    """Refused: a chat needs a model that was trained to hold one."""
    raise Refusal(
        400, "this service has no models for chats", "complete a text instead: POST /v1/completions", param="messages",
        code="unsupported_endpoint",
    )  # fmt: skip


# --- Completions


@router.post("/completions")
async def completions(body: CompletionBody, request: Request) -> Response:
    """Go on with texts; with `stream`, piece by piece."""
    body.check()
    service, prompts = service_of(request), body.prompts()
    service.check_texts(prompts)
    service.check_options(body.options())
    if (body.n or 1) * len(prompts) > service.limits.texts:
        raise Refusal(413, f"n x prompts is more than {service.limits.texts}", param="n")
    if body.stream:
        return await _streamed(service, request, body, prompts[0])
    found = await service.generate(request, body.model, prompts, body.stops(), body.options())
    return await _completed(service, request, body, found)


async def _completed(service: Service, request: Request, body: CompletionBody, found: Sequence[Generated]) -> Response:
    texts = [one for each in found for one in _several(each, body.n or 1)]

    def compute(generator: Generator, _: Asked) -> dict[str, JSON]:
        choices: list[JSON] = [_choice(generator, each, place, body) for place, each in enumerate(texts)]
        return {**_head(body), "choices": choices, "usage": _usage(generator, [each.prompt for each in found], texts)}

    return json_response(await service.ask(request, body.model, Generator, "generate", compute))


def _several(found: Generated, count: int) -> list[Generated]:
    """As many as were asked for: of a greedy text, the same."""
    each = list(found.each())
    return each if len(each) >= count else each * count


def _head(body: CompletionBody, number: str | None = None, created: int | None = None) -> dict[str, JSON]:
    return {
        "id": number or f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": created or int(time.time()),
        "model": body.model,
    }


def _choice(generator: Generator, found: Generated, place: int, body: CompletionBody) -> dict[str, JSON]:
    text = found.prompt + found.text if body.echo else found.text
    return {
        "index": place,
        "text": text,
        "finish_reason": "stop" if found.finished else "length",
        "logprobs": None if body.logprobs is None else _log_probabilities(generator, found, body),
    }


def _log_probabilities(generator: Generator, found: Generated, body: CompletionBody) -> dict[str, JSON]:
    """Each token with its log-probability, the likeliest at its place, and where it begins in the text."""
    prompt = generator.tokenizer.encode(found.prompt)
    ids = [*prompt, *found.ids][: generator.context - 1]
    first = 0 if body.echo else min(len(prompt), len(ids))
    written = tokens_written(generator.read_ids(ids), generator.tokenizer, first, body.logprobs or 0)
    tokens = [each.token.label for each in written]
    offsets, reached = list[JSON](), 0 if body.echo else len(found.prompt)
    for token in tokens:
        offsets.append(reached)
        reached += len(token)
    numbers: list[JSON] = [_log(each.token.probability) for each in written]
    tops: list[JSON] = [_tops(each) for each in written]
    return {
        "tokens": list(tokens),
        "token_logprobs": numbers,
        "top_logprobs": tops if body.logprobs else None,
        "text_offset": offsets,
    }


def _tops(written: WrittenToken) -> dict[str, JSON]:
    return {each.label: _log(each.probability) for each in (*written.alternatives, written.token)}


def _log(probability: float) -> float:
    return float(np.log(max(probability, 1e-300)))


def _usage(generator: Generator, prompts: Sequence[str], texts: Sequence[Generated]) -> dict[str, JSON]:
    read = sum(map(len, generator.tokenizer.encode_all(list(prompts))))
    return _usage_data(read, sum(len(each.ids) for each in texts))


def _usage_data(read: int, written: int) -> dict[str, JSON]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True)
class _Chunk:
    """A piece of a completion, and the numbers of the tokens so far."""

    text: str
    finish: str | None
    log_probabilities: dict[str, JSON] | None
    read: int
    written: int


async def _streamed(service: Service, request: Request, body: CompletionBody, prompt: str) -> Response:
    visit = visit_of(request)

    def begin(asked: Asked) -> Iterator[_Chunk]:
        generator = service.decoding.generator(visit, body.model)
        read = visit.read = len(generator.tokenizer.encode(prompt))
        if body.echo:
            yield _Chunk(prompt, None, None, read, 0)
        for event in service.decoding.stream(generator, prompt, body.stops(), body.options(), asked):
            if isinstance(event, Generated):
                visit.written = len(event.ids)
                found = None if body.logprobs is None else _log_probabilities(generator, event, body)
                yield _Chunk("", "stop" if event.finished else "length", found, read, len(event.ids))
            else:
                yield _Chunk(event.text, None, None, read, event.tokens)

    events = await service.work.stream(visit, begin)
    return StreamingResponse(_lines(body, events), media_type="text/event-stream")


async def _lines(body: CompletionBody, events: AsyncIterator[_Chunk]) -> AsyncIterator[bytes]:
    """Chunks as their clients read them; log-probabilities come with the last, when all of them are known."""
    head = _head(body)
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    last: _Chunk | None = None
    try:
        async with aclosing(events):  # type: ignore[type-var]
            async for last in events:
                choice: dict[str, Any] = {"index": 0, "text": last.text, "finish_reason": last.finish}
                choice["logprobs"] = last.log_probabilities
                yield sent_event({**head, "choices": [choice], **({"usage": None} if usage else {})})
        if usage and last is not None:
            yield sent_event({**head, "choices": [], "usage": _usage_data(last.read, last.written)})
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield sent_event(error_data(OPENAI, as_refusal(error)))


# --- Embeddings


@router.post("/embeddings")
async def embeddings(body: EmbeddingBody, request: Request) -> Response:
    """One vector of length 1 for each text, of a model that fills gaps."""
    service, texts = service_of(request), body.texts()
    service.check_texts(texts)

    def compute(filler: Filler, asked: Asked) -> dict[str, JSON]:
        vectors = filler.vectors(texts, cancel=asked.cancelled)  # (texts, D)
        if body.dimensions not in (None, vectors.shape[1]):
            raise Refusal(400, f"this model's vectors have {vectors.shape[1]} dimensions", param="dimensions")
        count = sum(map(len, filler.tokenizer.encode_all(texts)))
        visit_of(request).read = count
        data: list[JSON] = [
            {"object": "embedding", "index": place, "embedding": _embedding(vector, body.encoding_format)}
            for place, vector in enumerate(vectors)
        ]
        usage: dict[str, JSON] = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return json_response(await service.ask(request, body.model, Filler, "give embeddings", compute))


def _embedding(vector: np.ndarray, form: str | None) -> JSON:
    """A vector as numbers, or as the bytes of little-endian float32 in base64."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    found: list[float] = vector.tolist()
    return found
