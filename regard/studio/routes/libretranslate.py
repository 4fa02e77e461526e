"""LibreTranslate's API, for the programs that speak it: /translate, /languages, /detect, /frontend/settings.

Fields and answers are theirs (docs.libretranslate.com). What Regard has instead of their models: those of this service; a
model that nobody named the languages of goes from "source" to "target".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from html.parser import HTMLParser
from typing import Any, Literal

from babel import Locale, UnknownLocaleError
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.responses import Response

from regard.config import Tables
from regard.data.builtin.names import LANGUAGES
from regard.files import JSON
from regard.studio.bodies import checked, described_body, fields_of
from regard.studio.catalog import Entry
from regard.studio.detecting import language_shares
from regard.studio.guard import shows_token
from regard.studio.refusals import Refusal, json_response
from regard.studio.service import Service, service_of
from regard.studio.work import Asked
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.translate.results import Translation

router = APIRouter(tags=["LibreTranslate"])
AUTO = "auto"


class LibreTranslateBody(BaseModel):
    """A request of LibreTranslate; fields that it does not know are left alone, as there."""

    model_config = ConfigDict(extra="ignore")

    q: str | list[str] = Field(description="A text, or several.")
    source: str = Field(description="A code from /languages, or auto.", max_length=100)
    target: str = Field(max_length=100)
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, description="How many other translations to tell.")
    api_key: str | None = None


class DetectBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    q: str = Field(description="A text.")
    api_key: str | None = None


async def _fields(request: Request) -> dict[str, Any]:
    """The fields of a request that shows the token, wherever it stands."""
    fields = await fields_of(request)
    key = fields.get("api_key")
    token = service_of(request).config.token
    if not shows_token(token, request.scope, Headers(scope=request.scope), key if isinstance(key, str) else None):
        raise Refusal(403, "Invalid API key" if key else "an API key is needed", "send it as api_key")
    return {name: value for name, value in fields.items() if value is not None}


@router.post("/translate", openapi_extra=described_body(LibreTranslateBody, form=True))
async def translate(request: Request) -> Response:
    """Translate a text or several from one language to another."""
    service, body = service_of(request), checked(LibreTranslateBody, await _fields(request))
    texts = [body.q] if isinstance(body.q, str) else body.q
    if not any(texts):
        raise Refusal(400, "Invalid request: missing q parameter", param="q")
    service.check_texts(texts)
    entry, detected = await _model(service, request, body, texts)
    many: Tables = {"n_best": body.alternatives + 1} if body.alternatives else {}
    if body.alternatives:
        many["beam"] = max(min(5, service.limits.beam), body.alternatives + 1)
    whole = [_Lines(text) if body.format == "text" else _Markup(text) for text in texts]
    parts = [part for each in whole for part in each.texts]
    found = iter(await service.translate(request, entry.name, parts, many) if parts else [])
    answers = [[next(found) for _ in each.texts] for each in whole]
    written = [each.written([one.text for one in parts]) for each, parts in zip(whole, answers, strict=True)]
    answer: dict[str, JSON] = {"translatedText": written[0] if isinstance(body.q, str) else written}
    if body.source == AUTO:
        answer["detectedLanguage"] = detected if isinstance(body.q, str) else [detected] * len(texts)
    if body.alternatives:
        others = [_others(each, parts, body.format) for each, parts in zip(whole, answers, strict=True)]
        answer["alternatives"] = others[0] if isinstance(body.q, str) else others
    return json_response(answer)


def _others(whole: _Lines | _Markup, parts: Sequence[Translation], form: str) -> list[JSON]:
    """Other translations of a text that is one line; of several lines and of markup there are none, as there."""
    if form == "html" or len(parts) != 1:
        return []
    texts = [whole.written([each.text]) for each in parts[0].alternatives]
    return list(dict.fromkeys(text for text in texts if text != whole.written([parts[0].text])))


async def _model(
    service: Service, request: Request, body: LibreTranslateBody, texts: Sequence[str]
) -> tuple[Entry, dict[str, JSON]]:
    """The model from one language to another; where the first is not told, it is detected, if there is a choice."""
    entries = await service.run(request, lambda _: service.catalog.of_task("translate"))
    known = {code for each in entries for code in each.languages or ()}
    for code in (body.source, body.target):
        if code != AUTO and code not in known:
            raise Refusal(400, f"{code} is not supported", f"there is {', '.join(sorted(known))}")
    fitting = [each for each in entries if each.languages is not None and each.languages[1] == body.target]
    source, sure = body.source, 100.0
    if source == AUTO:
        sources = {each.languages[0] for each in fitting if each.languages is not None}
        if len(sources) == 1:
            source, sure = sources.pop(), 0.0  # the only one there is: nothing was detected
        else:
            best = (await _detected(service, request, " ".join(texts), sources))[0]
            source, sure = str(best["language"]), float(str(best["confidence"]))
    entry = next((each for each in fitting if each.languages == (source, body.target)), None)
    if entry is None:
        raise Refusal(400, f"{body.target} is not available as a target language from {source}")
    return entry, {"confidence": sure, "language": source}


@router.get("/languages")
async def languages(request: Request) -> Response:
    """The languages that can be translated, and into which."""
    service = service_of(request)
    await _fields(request)
    entries = await service.run(request, lambda _: service.catalog.of_task("translate"))
    targets: dict[str, list[str]] = {}
    for each in entries:
        assert each.languages is not None
        source, target = each.languages
        if target not in targets.setdefault(source, []):
            targets[source].append(target)
        targets.setdefault(target, [])
    return json_response(
        [{"code": code, "name": language_name(code), "targets": found} for code, found in targets.items()]
    )


@router.post("/detect", openapi_extra=described_body(DetectBody, form=True))
async def detect(request: Request) -> Response:
    """The language of a text, as a classifier of names guesses it: the likeliest first."""
    service, body = service_of(request), checked(DetectBody, await _fields(request))
    service.check_texts([body.q])
    if not body.q.strip():
        raise Refusal(400, "Invalid request: missing q parameter", param="q")
    return json_response(await _detected(service, request, body.q))


async def _detected(
    service: Service, request: Request, text: str, among: Collection[str] = LANGUAGES
) -> list[dict[str, JSON]]:
    """Languages with their confidence from 0 to 100; a classifier whose labels are languages tells them.

    `among` are those that it can be; where the classifier knows none of them, it can be any.
    """
    entries = await service.run(request, lambda _: service.catalog.of_task("classify"))
    able = [each for each in entries if set(each.config.get("labels") or ()) >= set(LANGUAGES)]
    if not able:
        raise Refusal(
            400, "this service has no model that tells languages apart", "name the source language, or train one: "
            "regard train classify",
        )  # fmt: skip

    def compute(classifier: TextClassifier, asked: Asked) -> list[dict[str, JSON]]:
        shares = language_shares(classifier, text, asked.cancelled)
        possible = {label: share for label, share in shares.items() if label in among} or shares
        total = sum(possible.values())
        likely = [(label, share / total) for label, share in possible.items() if share >= 0.01 * total]
        return [{"confidence": round(100 * share, 1), "language": label} for label, share in likely]

    return await service.ask(request, able[0].name, TextClassifier, "classify", compute)


@router.get("/frontend/settings")
async def settings(request: Request) -> Response:
    """The settings that their page asks for before it shows itself."""
    service = service_of(request)
    entries = await service.run(request, lambda _: service.catalog.of_task("translate"))
    first = entries[0].languages if entries else None
    source, target = first or ("", "")
    token = service.config.token is not None
    return json_response(
        {
            "charLimit": service.limits.characters,
            "frontendTimeout": 500,
            "apiKeys": token,
            "keyRequired": token,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
        }
    )


def language_name(code: str) -> str:
    """The English name of a language; of what is none, its code as a name: Dates, ISO 8601."""
    try:
        return Locale.parse(code.replace("-", "_")).get_display_name("en") or code
    except (UnknownLocaleError, ValueError, TypeError):
        return code.capitalize() if code.isalpha() else code.upper().replace("-", " ")


class _Lines:
    """A text line by line: models translate sentences, and empty lines stay where they are."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines() or [""]
        self.texts = [line for line in self.lines if line.strip()]

    def written(self, translated: Sequence[str]) -> str:
        found = iter(translated)
        return "\n".join(next(found) if line.strip() else line for line in self.lines)


class _Markup(HTMLParser):
    """The texts of a piece of HTML, translated in their places; tags, scripts and styles stay as they are."""

    KEPT = ("script", "style")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[tuple[str, bool]] = []  # a piece, and whether it is text
        self.inside = ""
        self.feed(text)
        self.close()
        self.texts = [part.strip() for part, is_text in self.parts if is_text]

    def written(self, translated: Sequence[str]) -> str:
        found = iter(translated)
        return "".join(_around(part, escape(next(found), quote=False)) if text else part for part, text in self.parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag if tag in self.KEPT else self.inside
        self.parts.append((self.get_starttag_text() or "", False))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append((self.get_starttag_text() or "", False))

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside
        self.parts.append((f"</{tag}>", False))

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.parts.append((data, False))
        else:
            self.parts.append((data, True) if data.strip() else (data, False))

    def handle_comment(self, data: str) -> None:
        self.parts.append((f"<!--{data}-->", False))

    def handle_decl(self, decl: str) -> None:
        self.parts.append((f"<!{decl}>", False))


def _around(before: str, text: str) -> str:
    """The text with the spaces that stood around the one before it."""
    start = before[: len(before) - len(before.lstrip())]
    return start + text + before[len(before.rstrip()) :]
