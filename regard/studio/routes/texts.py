"""Regard's own API for models of text: results are the objects of docs/json.md."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from regard.attention import intervene
from regard.config import Tables
from regard.decode.live import Live
from regard.decode.ranking import Hypothesis
from regard.files import JSON, finite
from regard.inspect.writing import beam_tree, likeliest_next, tokens_written
from regard.predictor import Predictor, check_cancel
from regard.studio.bodies import (
    AnyChange,
    BeamBody,
    ClassifyBody,
    FillBody,
    GenerateBody,
    NextBody,
    TranslateBody,
    VectorsBody,
)
from regard.studio.refusals import Refusal, as_refusal, json_response
from regard.studio.service import Service, service_of
from regard.studio.visit import visit_of
from regard.studio.work import Asked
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.generate.results import Generated
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.results import Translation
from regard.tokens import END, TextTokenizer

router = APIRouter(prefix="/api", tags=["texts"])


# --- Translate


@router.post("/translate")
async def translate(body: TranslateBody, request: Request) -> Response:
    """Translate a text: the best, or several; from a prefix on; with heads removed, rows pinned, temperatures changed."""
    service = service_of(request)
    if body.changes or body.prefix or body.attention:
        return json_response(await _translate_alone(service, request, body))
    found = await service.translate(request, body.model, [body.text], body.options())
    return json_response(translation_data(found[0]))


async def _translate_alone(service: Service, request: Request, body: TranslateBody) -> dict[str, JSON]:
    """A translation that is not searched for together with others: something is changed, or looked at."""
    service.check_texts([body.text])
    service.check_options(body.options())

    def compute(translator: Translator, asked: Asked) -> dict[str, JSON]:
        options: Tables = {**body.options(), "prefix": body.prefix, "attention": body.attention}
        with changed(translator, body.changes):
            found = translator.translate(body.text, cancel=asked.cancelled, **options)
        visit_of(request).written += len(found.ids)
        return translation_data(found)

    return await service.ask(request, body.model, Translator, "translate", compute)


def changed(predictor: Predictor, changes: Sequence[AnyChange]) -> AbstractContextManager[None]:
    """Inside this block the model is changed; without changes nothing is."""
    return intervene(predictor.model, *(each.change() for each in changes)) if changes else nullcontext()


def translation_data(found: Translation) -> dict[str, JSON]:
    """A translation's data, with its ids, from which the page goes on."""
    data: dict[str, JSON] = {**found.data(), "ids": list(found.ids)}
    if found.alternatives:
        data["alternatives"] = [translation_data(each) for each in found.alternatives]
    return data


@router.post("/next")
async def next_tokens(body: NextBody, request: Request) -> Response:
    """The likeliest next tokens behind a prefix, of a translation or of a text."""
    service = service_of(request)
    service.check_texts([body.text, body.prompt])

    def compute(predictor: Predictor, _: Asked) -> dict[str, JSON]:
        if isinstance(predictor, Translator):
            tokenizer = predictor.tokenizers.target
            check_ids(body.prefix, tokenizer)
            reading = predictor.read_ids(predictor.tokenizers.source.encode(body.text), body.prefix)
            found = likeliest_next(reading, tokenizer, body.count, place=len(body.prefix))
        elif isinstance(predictor, Generator):
            tokenizer = predictor.tokenizer
            check_ids(body.prefix, tokenizer)
            ids = [*tokenizer.encode(body.prompt), *body.prefix][-(predictor.context - 1) :]
            found = likeliest_next(predictor.read_ids(ids), tokenizer, body.count)
        else:
            raise Refusal(400, f"{body.model} writes no text", "ask a model to translate or to generate", param="model")
        return {"tokens": [each.data() for each in found], "vocabulary": tokenizer.size}

    return json_response(await service.ask(request, body.model, Predictor, "write", compute))


def check_ids(ids: Sequence[int], tokenizer: TextTokenizer) -> None:
    """Refuse ids that no text has."""
    for token in ids:
        if token >= tokenizer.size or token in tokenizer.specials.control:
            raise Refusal(
                422, f"no text holds the id {token}", f"there are {tokenizer.size}, from 0 on", param="prefix"
            )


@router.post("/beam")
async def beam(body: BeamBody, request: Request) -> Response:
    """A beam search as a tree: every hypothesis of every step, and what became of it."""
    service = service_of(request)
    service.check_texts([body.text])
    options: Tables = {"beam": body.beam, "n_best": body.beam, "sample": False}
    options |= {} if body.max_length is None else {"max_length": body.max_length}
    service.check_options(options)

    def compute(translator: Translator, asked: Asked) -> dict[str, JSON]:
        decode = translator.options(options)

        def search(watch: Callable[[Live], None]) -> list[Hypothesis]:
            def seen(live: Live) -> None:
                check_cancel(asked.cancelled)
                watch(live)

            return translator.search_one(body.text, decode, watch=seen)

        tree, best = beam_tree(search, translator.tokenizers.target, END)
        texts: list[JSON] = [
            {"text": translator.tokenizers.target.decode(each.ids), "score": each.score, "ids": list(each.ids)}
            for each in best
        ]
        return {**tree.data(), "best": texts}

    return json_response(await service.ask(request, body.model, Translator, "translate", compute))


# --- Generate


@router.post("/generate")
async def generate(body: GenerateBody, request: Request) -> Response:
    """Go on with a text; with `stream`, as Server-Sent Events: pieces as they become certain, then the whole."""
    service = service_of(request)
    if body.stream and body.changes:
        raise Refusal(422, "a stream is of the model as it is", "leave out stream, or changes", param="changes")
    if body.stream:
        return await _streamed(service, request, body)
    if not body.attention and not body.alternatives and not body.changes:
        found = await service.generate(request, body.model, [body.prompt], body.stop, body.options())
        return json_response(generated_data(found[0]))
    service.check_texts([body.prompt])
    service.check_options(body.options())

    def compute(generator: Generator, asked: Asked) -> dict[str, JSON]:
        options: Tables = {**body.options(), "attention": body.attention, "stop": body.stop}
        with changed(generator, body.changes):
            found = generator.generate(body.prompt, cancel=asked.cancelled, **options)
            return _with_steps(generator, found, body.alternatives)

    return json_response(await service.ask(request, body.model, Generator, "generate", compute))


async def _streamed(service: Service, request: Request, body: GenerateBody) -> Response:
    service.check_texts([body.prompt])
    service.check_options(body.options())
    visit = visit_of(request)

    def begin(asked: Asked) -> Iterator[tuple[str, dict[str, JSON]]]:
        generator = service.decoding.generator(visit, body.model)
        options: Tables = {**body.options(), "attention": body.attention}
        for event in service.decoding.stream(generator, body.prompt, body.stop, options, asked):
            if isinstance(event, Generated):
                visit.written += len(event.tokens)
                yield "done", _with_steps(generator, event, body.alternatives)
            else:
                yield "piece", event.data()

    return event_stream(await service.work.stream(visit, begin))


def event_stream(events: AsyncIterator[tuple[str, dict[str, JSON]]]) -> Response:
    """Named Server-Sent Events; what fails on the way is an event as well."""

    async def lines() -> AsyncIterator[bytes]:
        try:
            async with aclosing(events):  # type: ignore[type-var]
                async for name, data in events:
                    yield sent_event(data, name)
        except Exception as error:
            refusal = as_refusal(error)
            yield sent_event({"error": {"message": refusal.message, "hint": refusal.hint}}, "error")

    return StreamingResponse(lines(), media_type="text/event-stream")


def sent_event(data: Any, name: str = "") -> bytes:
    """One Server-Sent Event."""
    text = json.dumps(finite(data), ensure_ascii=False, separators=(",", ":"))
    return (
        (f"event: {name}\n" if name else "").encode() + b"data: " + text.encode("utf-8", "backslashreplace") + b"\n\n"
    )


def generated_data(found: Generated) -> dict[str, JSON]:
    data: dict[str, JSON] = {**found.data(), "ids": list(found.ids)}
    if found.alternatives:
        data["alternatives"] = [generated_data(each) for each in found.alternatives]
    return data


def _with_steps(generator: Generator, found: Generated, count: int) -> dict[str, JSON]:
    """A text's data, with the tokens that were likely beside each: one pass over the whole."""
    data = generated_data(found)
    if not count:
        return data
    prompt = generator.tokenizer.encode(found.prompt)
    ids = [*prompt, *found.ids][: generator.context - 1]
    written = tokens_written(generator.read_ids(ids), generator.tokenizer, min(len(prompt), len(ids)), count)
    return {**data, "steps": [each.data() for each in written]}


# --- Fill, vectors, classify


@router.post("/fill")
async def fill(body: FillBody, request: Request) -> Response:
    """Fill the gaps of texts."""
    service, texts = service_of(request), body.listed()
    service.check_texts(texts)

    def compute(filler: Filler, asked: Asked) -> list[JSON]:
        with changed(filler, body.changes):
            return [filler.fill(text, body.top, asked.cancelled).data() for text in texts]

    found = await service.ask(request, body.model, Filler, "fill", compute)
    return json_response(found[0] if body.text is not None else found)


@router.post("/vectors")
async def vectors(body: VectorsBody, request: Request) -> Response:
    """One vector of length 1 for each text."""
    service, texts = service_of(request), body.listed()
    service.check_texts(texts)

    def compute(filler: Filler, asked: Asked) -> list[JSON]:
        return [each.data() for each in filler.text_vectors(texts, body.pooling, asked.cancelled)]

    found = await service.ask(request, body.model, Filler, "give vectors", compute)
    return json_response(found[0] if body.text is not None else found)


@router.post("/classify")
async def classify(body: ClassifyBody, request: Request) -> Response:
    """The label of each text, and how much each word counted."""
    service, texts = service_of(request), body.listed()
    service.check_texts([*texts, body.second])
    if body.text is None and (body.second is not None or body.words):
        raise Refusal(422, "second and words go with one text", "give it as text", param="texts")

    def compute(classifier: TextClassifier, asked: Asked) -> list[JSON]:
        seconds = None if body.second is None else [body.second]
        with changed(classifier, body.changes):
            found: list[JSON] = [each.data() for each in classifier.classify(texts, seconds, cancel=asked.cancelled)]
            if body.words:
                assert isinstance(found[0], dict)
                found[0]["words"] = _words(classifier, texts[0], body.second)
        return found

    found = await service.ask(request, body.model, TextClassifier, "classify", compute)
    return json_response(found[0] if body.text is not None else found)


def _words(classifier: TextClassifier, text: str, second: str | None) -> list[JSON]:
    """The pieces of a text, those between them too, so that together they are the text; each with what it counted."""
    weighed = classifier.look(text, second)
    found: list[JSON] = []
    reached = 0
    for (start, end), weight in zip(weighed.spans, weighed.weights, strict=True):
        if start > reached:
            found.append({"text": weighed.text[reached:start], "weight": None})
        if end > start:
            found.append({"text": weighed.text[start:end], "weight": weight})
        reached = max(reached, end)
    return [*found, {"text": weighed.text[reached:], "weight": None}] if reached < len(weighed.text) else found
