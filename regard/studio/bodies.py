"""The requests of Regard's own API, field by field; and how any request is read: JSON, a form, or a picture's bytes."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from regard.attention import Change, Pin, Remove, Role, Temperature
from regard.config import Tables
from regard.errors import UsageError
from regard.studio.refusals import Refusal

Name = Annotated[str, Field(description="A name from GET /api/models.", max_length=200, examples=["translate-1"])]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=4096)]
B = TypeVar("B", bound=BaseModel)
MULTIPART = "multipart/form-data"


class Body(BaseModel):
    """The base of every request: an unknown field is refused, and so is a number that is not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RemoveChange(Body):
    """Take a head away, or all heads of a layer."""

    kind: Literal["remove"]
    role: Role | None = None
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)

    def change(self) -> Change:
        return Remove(self.role, self.layer, head=self.head)


class PinChange(Body):
    """One query looks where a person says."""

    kind: Literal["pin"]
    role: Role | None = None
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    query: int = Field(ge=0, lt=100_000)
    weights: dict[int, float] = Field(min_length=1, max_length=4096, description="The share of each key, one in all.")

    def change(self) -> Change:
        most = max(self.weights)
        if min(self.weights) < 0 or most >= 100_000:
            raise UsageError("keys are counted from 0, and a text has less than 100,000 of them")
        row = [self.weights.get(key, 0.0) for key in range(most + 1)]
        return Pin(self.role, self.layer, head=self.head, row=self.query, weights=row)


class TemperatureChange(Body):
    """Look more softly or more sharply."""

    kind: Literal["temperature"]
    role: Role | None = None
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    value: float = Field(gt=0, le=1000)

    def change(self) -> Change:
        return Temperature(self.role, self.layer, head=self.head, value=self.value)


AnyChange = Annotated[RemoveChange | PinChange | TemperatureChange, Field(discriminator="kind")]
Changes = Annotated[list[AnyChange], Field(max_length=64)]


class TokensBody(Body):
    model: Name
    text: str
    side: Literal["source", "target"] = "source"


class TranslateBody(Body):
    model: Name
    text: str
    beam: int | None = Field(None, ge=1)
    n_best: int | None = Field(None, ge=1)
    sample: bool | None = None
    seed: Seed | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_length: int | None = Field(None, ge=0)
    prefix: Ids = Field([], description="Ids that the translation begins with.")
    changes: Changes = []
    attention: bool = False

    def options(self) -> Tables:
        names = ("beam", "n_best", "sample", "seed", "temperature", "top_k", "top_p", "max_length")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class NextBody(Body):
    model: Name
    text: str = Field("", description="The source of a translation.")
    prompt: str = Field("", description="How a text begins.")
    prefix: Ids = Field([], description="Ids that were written behind it.")
    count: int = Field(10, ge=1, le=1000)


class BeamBody(Body):
    model: Name
    text: str
    beam: int = Field(5, ge=1)
    max_length: int | None = Field(None, ge=0)


class GenerateBody(Body):
    model: Name
    prompt: str = ""
    max_length: int | None = Field(None, ge=0)
    sample: bool | None = None
    beam: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    min_p: float | None = Field(None, ge=0, lt=1)
    seed: Seed | None = None
    stop: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field([], max_length=16)
    n_best: int | None = Field(None, ge=1)
    alternatives: int = Field(0, ge=0, le=50, description="Likely tokens told beside each that was written.")
    attention: bool = False
    changes: Changes = Field([], description="Not of a stream.")
    stream: bool = False

    def options(self) -> Tables:
        names = ("max_length", "sample", "beam", "temperature", "top_k", "top_p", "min_p", "seed", "n_best")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class TextsBody(Body):
    """One text or several."""

    model: Name
    text: str | None = None
    texts: list[str] | None = None

    def listed(self) -> list[str]:
        if (self.text is None) == (self.texts is None):
            raise Refusal(422, "give either text or texts", param="text")
        return [self.text] if self.text is not None else list(self.texts or ())


class FillBody(TextsBody):
    top: int = Field(5, ge=1, le=100)
    changes: Changes = []


class VectorsBody(TextsBody):
    pooling: Literal["cls", "mean"] | None = None


class ClassifyBody(TextsBody):
    second: str | None = Field(None, description="The other text, where labels are of pairs.")
    words: bool = Field(False, description="Also tell how much each word of a single text counted.")
    changes: Changes = []


class PictureBody(Body):
    """A picture in JSON; in a form it is a file named `picture`."""

    model: Name
    picture: str = Field(description="Its bytes in base64, or a data: URL.")
    attention: bool = True
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    beam: int | None = Field(None, ge=1)
    n_best: int | None = Field(None, ge=1)


class QuestionBody(PictureBody):
    question: str = Field(max_length=2000)


class LookBody(Body):
    model: Name
    text: str
    second: str | None = Field(
        None, description="The translation (none: the model's own), or the other text of a pair."
    )
    written: Ids = Field([], description="Instead of a translation's text: its ids, as the model wrote them.")
    role: Role | None = None
    changes: Changes = []


class ScoreBody(Body):
    model: Name
    text: str
    second: str | None = Field(None, description="The translation; none: the model's own.")
    written: Ids = Field([], description="Instead of a translation's text: its ids, as the model wrote them.")
    changes: Changes = []


class WalkBody(Body):
    model: Name
    text: str
    second: str | None = None
    role: Role | None = None
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    query: int | str | None = None


class HeadsBody(Body):
    model: Name
    texts: int = Field(100, ge=1, le=2000)
    removal: bool = True


# --- Reading a request


def checked(kind: type[B], values: object) -> B:
    """Fields as their class has them; what is wrong with them is told as FastAPI tells it."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def media_type(request: Request) -> str:
    """The media type that a request declares for its body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def fields_of(request: Request) -> dict[str, Any]:
    """The fields of a request, whether they come as JSON or as a form; of a GET also its query."""
    if media_type(request) in (MULTIPART, "application/x-www-form-urlencoded"):
        return await _form(request)
    body = await request.body()
    if not body:
        return dict(request.query_params)
    return as_object(body)


def as_object(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is not JSON", str(error)[:200]) from None
    if not isinstance(found, dict):
        raise Refusal(422, "the body is not an object of fields")
    return found


async def _form(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    form = await request.form(max_files=4, max_fields=200, max_part_size=16 * 2**20)
    for name, value in form.multi_items():
        each = await value.read() if isinstance(value, UploadFile) else value
        if name in found:  # q=a&q=b are two texts
            before = found[name]
            found[name] = [*before, each] if isinstance(before, list) else [before, each]
        else:
            found[name] = each
    return found


async def picture_fields(request: Request) -> tuple[dict[str, Any], bytes]:
    """The fields of a request with a picture, and the picture's bytes, which stand in base64 where they are text."""
    fields = await fields_of(request)
    picture = fields.get("picture")
    if isinstance(picture, bytes):
        return {**fields, "picture": ""}, picture
    return fields, from_base64(picture)


def from_base64(text: object) -> bytes:
    """The bytes of a picture that is given as text."""
    if not isinstance(text, str):
        raise Refusal(422, "there is no picture", "send it as a file named picture, or in base64", param="picture")
    data = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(422, "the picture is not base64", param="picture") from None


def described_body(kind: type[BaseModel], *, form: bool = False, picture: str = "") -> dict[str, Any]:
    """The schema of a request that is read by hand: JSON, a form, or a picture's bytes."""
    schema = _inlined(kind.model_json_schema(), kind.model_json_schema().get("$defs", {}))
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if form:
        content["application/x-www-form-urlencoded"] = {"schema": schema}
    if picture:
        file = {**schema, "properties": {**schema["properties"], picture: {"type": "string", "format": "binary"}}}
        content[MULTIPART] = {"schema": file}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(part: Any, known: dict[str, Any]) -> Any:
    """A schema without references: what is read by hand has no place among FastAPI's components."""
    if isinstance(part, list):
        return [_inlined(each, known) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(known[part["$ref"].rpartition("/")[2]], known)
    return {name: _inlined(each, known) for name, each in part.items() if name != "$defs"}
