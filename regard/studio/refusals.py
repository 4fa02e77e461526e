"""Requests that are refused: a status, what is wrong and what would help, in the form that each API's clients expect."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard.decode.tickets import DeadlinePassed, EngineClosed, Overloaded
from regard.errors import ModelError, RegardError, UsageError
from regard.files import JSON, finite

RETRY_SECONDS = 2  # after which a full queue has most likely moved on
LIBRETRANSLATE = ("/translate", "/languages", "/detect", "/frontend/settings")
OPENAI, HUGGING_FACE = "/v1/", "/hf/"
OPENAI_TYPES = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}


class Refusal(HTTPException):
    """A request that is not served. `param` names the field that is wrong, where there is one."""

    def __init__(
        self,
        status: int,
        message: str,
        hint: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.message, self.hint, self.param, self.code = message, hint, param, code

    def sentence(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class WrongPart(BaseModel):
    """What is wrong, and what would help."""

    message: str
    hint: str = ""


class Failure(BaseModel):
    """The form of every error of Regard's own API."""

    error: WrongPart = Field(description="What is wrong, and what would help.")


def full() -> Refusal:
    """The refusal of a request for which there is no room now."""
    return Refusal(
        503, "too many requests wait already", f"try again in {RETRY_SECONDS} s", code="overloaded",
        headers={"Retry-After": str(RETRY_SECONDS)},
    )  # fmt: skip


def too_late(seconds: float) -> Refusal:
    return Refusal(504, f"there was no answer within {seconds:g} s", "ask for less, or later", code="timeout")


def as_refusal(error: Exception) -> Refusal:
    """The words that a client is told of an error; of one that nobody foresaw, only that it happened."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):
        return _wrong_fields(error)
    if isinstance(error, Overloaded | EngineClosed):
        return full()
    if isinstance(error, DeadlinePassed):
        return Refusal(504, error.wrong, "ask for less, or later", code="timeout")
    if isinstance(error, ModelError):
        return Refusal(500, error.wrong, error.hint)
    if isinstance(error, RegardError):
        return Refusal(400 if isinstance(error, UsageError) else 422, error.wrong, error.hint)
    return Refusal(500, "the server failed at this request", "its log has the reason")


def _wrong_fields(error: RequestValidationError) -> Refusal:
    """The first thing that is wrong with the fields of a request; what was sent is not repeated."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    if first["type"] == "json_invalid":
        return Refusal(400, "the body is not JSON", str(first.get("ctx", {}).get("error", "")))
    what = str(first["msg"]).removeprefix("Value error, ")
    return Refusal(422, f"{place}: {what}" if place else what, param=place or None)


def refused(path: str, refusal: Refusal) -> Response:
    """The response of a refusal, in the words of the API that the path belongs to."""
    status, body = refusal.status_code, error_data(path, refusal)
    if path.startswith((OPENAI, HUGGING_FACE)) or path in LIBRETRANSLATE:
        status = 400 if status == 422 else status  # their servers and clients know 400
    return json_response(body, status, refusal.headers)


def error_data(path: str, refusal: Refusal) -> dict[str, JSON]:
    if path.startswith(OPENAI):
        kind = OPENAI_TYPES.get(refusal.status_code)
        kind = kind or ("invalid_request_error" if refusal.status_code < 500 else "server_error")
        told = {"message": refusal.sentence(), "type": kind, "param": refusal.param, "code": refusal.code}
        return {"error": told}
    if path.startswith(HUGGING_FACE) or path in LIBRETRANSLATE:
        return {"error": refusal.sentence()}
    return {"error": {"message": refusal.message, "hint": refusal.hint}}


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as strict JSON: a number that is not finite is null."""
    body = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(body.encode("utf-8", "backslashreplace"), status, headers, "application/json")
