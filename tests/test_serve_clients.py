"""Clients that others wrote, unchanged, against the service: LibreTranslate's, OpenAI's, Hugging Face's; and its schema."""

from __future__ import annotations

import base64
import math
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import schemathesis
from huggingface_hub import InferenceClient
from hypothesis import HealthCheck, Phase, given, settings
from libretranslatepy import LibreTranslateAPI
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from served import Client, picture, save_bundles, serving, small

import regard
from regard.studio.config import Limits
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator

TEXT = "two dogs sleep"
TOKEN = "a token of some length"
MODELS = {  # that can do what a route is for; a made-up name would only ever be refused
    "completions": "generate", "generate": "generate", "next": "generate", "walk": "generate", "embeddings": "fill",
    "fill": "fill", "vectors": "fill", "classify": "classify", "classify-pictures": "classify-pictures",
    "caption": "caption", "answer": "answer",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("clients")
    save_bundles(here)
    return here


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    models = tuple(path for path in folder.iterdir() if path.is_dir())
    limits = Limits(tokens=64, characters=500, texts=8, beam=4, archive_bytes=1_000_000)
    with serving(small(folder, models, limits, page=True)) as found:
        yield found


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    return Generator.load(folder / "generate")


# --- LibreTranslate


def test_libretranslatepy(client: Client, folder: Path) -> None:
    theirs, own = LibreTranslateAPI(client.address), Translator.load(folder / "translate")
    assert theirs.translate(TEXT, "en", "de") == own.translate(TEXT).text
    assert theirs.translate("a man\n\ntwo dogs", "en", "de").split("\n")[2] == own.translate("two dogs").text
    assert {each["code"]: each["targets"] for each in theirs.languages()} == {"en": ["de"], "de": []}
    assert {each["name"] for each in theirs.languages()} == {"English", "German"}
    found = theirs.detect("Allemagne")
    label = regard.load(folder / "names", task="classify").classify("Allemagne")
    assert found[0] == {"language": label.label, "confidence": pytest.approx(100 * label.probability, abs=0.06)}
    with pytest.raises(urllib.error.HTTPError) as refused:
        theirs.translate(TEXT, "en", "eo")
    assert refused.value.code == 400


def test_stretches_of_a_long_text_vote_on_its_language(client: Client, folder: Path) -> None:
    """Five words are two stretches, each read as it is and with capitals; their log-probabilities are averaged."""
    classifier = regard.load(folder / "names", task="classify")
    read = ["two dogs sleep and", "Two Dogs Sleep And", "dream", "Dream"]
    votes = [classifier.classify(text).probabilities for text in read]
    total = {label: math.exp(sum(math.log(each[label] + 1e-4) for each in votes) / 4) for label in votes[0]}
    wanted = max(total, key=total.__getitem__)
    found = client.json("/detect", {"q": "two dogs sleep, and dream!"})
    assert found[0]["language"] == wanted
    assert found[0]["confidence"] == pytest.approx(100 * total[wanted] / sum(total.values()), abs=0.06)


def test_libretranslate_field_for_field(client: Client, folder: Path) -> None:
    own = Translator.load(folder / "translate")
    asked = {"q": [TEXT, "a man"], "source": "auto", "target": "de", "alternatives": 2, "format": "text", "api_key": ""}
    found = client.json("/translate", asked)
    best = [own.translate(text, beam=4, n_best=3) for text in asked["q"]]
    assert found["translatedText"] == [each.text for each in best]
    assert found["alternatives"][0] == [each.text for each in best[0].alternatives]
    assert found["detectedLanguage"] == [{"confidence": 0.0, "language": "en"}] * 2  # the only one there is
    one = client.json("/translate", {"q": TEXT, "source": "en", "target": "de"})
    assert one == {"translatedText": own.translate(TEXT).text}
    markup = "<p class='x'> a man <b>two dogs</b></p><script>var a = 1 < 2</script>"
    html = client.json("/translate", {"q": markup, "source": "en", "target": "de", "format": "html"})["translatedText"]
    assert html.startswith("<p class='x'> ") and html.endswith("</b></p><script>var a = 1 < 2</script>")
    assert client.json("/frontend/settings")["language"]["source"] == {"code": "en", "name": "English"}
    missing = client.ask("/translate", {"q": "", "source": "en", "target": "de"})
    assert missing.status == 400 and missing.json == {"error": "Invalid request: missing q parameter"}


def test_their_key_is_our_token(folder: Path) -> None:
    with serving(small(folder, (folder / "translate",), token=TOKEN)) as client:
        assert LibreTranslateAPI(client.address, TOKEN).languages()
        assert LibreTranslateAPI(client.address, TOKEN).translate(TEXT, "en", "de")
        for wrong in (None, TOKEN[:-1]):
            with pytest.raises(urllib.error.HTTPError) as refused:
                LibreTranslateAPI(client.address, wrong).translate(TEXT, "en", "de")
            assert refused.value.code == 403
        assert openai.OpenAI(base_url=f"{client.address}/v1", api_key=TOKEN).models.list().data == []
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{client.address}/v1", api_key="another", max_retries=0).models.list()


# --- OpenAI


@pytest.fixture
def theirs(client: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{client.address}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_openai_models(theirs: openai.OpenAI) -> None:
    assert {each.id for each in theirs.models.list()} == {"generate", "fill"}
    assert theirs.models.retrieve("fill").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        theirs.models.retrieve("nothing")


def test_openai_completions(theirs: openai.OpenAI, generator: Generator) -> None:
    found = theirs.completions.create(model="generate", prompt=TEXT, temperature=0, max_tokens=7)
    greedy = generator.generate(TEXT, sample=False, max_length=7)
    assert found.choices[0].text == greedy.text and found.choices[0].finish_reason == "length"
    read = len(generator.tokenizer.encode(TEXT))
    assert found.usage is not None and found.usage.total_tokens == read + 7
    several = theirs.completions.create(
        model="generate", prompt=[TEXT, "a man"], n=2, seed=11, temperature=1.3, max_tokens=6
    )
    same = generator.generate([TEXT, "a man"], sample=True, n_best=2, seed=11, temperature=1.3, top_k=0, max_length=6)
    assert [each.text for each in several.choices] == [one.text for each in same for one in each.each()]
    stopped = theirs.completions.create(
        model="generate", prompt=TEXT, temperature=0, max_tokens=7, stop=[greedy.text[1:3]]
    )
    assert stopped.choices[0].text == greedy.text[:1] and stopped.choices[0].finish_reason == "stop"


def test_openai_log_probabilities_and_echo(theirs: openai.OpenAI, generator: Generator) -> None:
    """As evaluation harnesses score a given text: nothing is added to it."""
    found = theirs.completions.create(model="generate", prompt=TEXT, temperature=0, max_tokens=4, logprobs=2)
    own = generator.generate(TEXT, sample=False, max_length=4)
    logs = found.choices[0].logprobs
    assert logs is not None and logs.tokens == list(own.tokens)
    assert logs.token_logprobs == pytest.approx(own.token_log_probabilities[:4], abs=1e-4)
    assert logs.top_logprobs is not None and max(logs.top_logprobs[0].values()) == pytest.approx(logs.token_logprobs[0])
    scored = theirs.completions.create(model="generate", prompt=TEXT, max_tokens=0, echo=True, logprobs=0)
    logs = scored.choices[0].logprobs
    assert scored.choices[0].text == TEXT and logs is not None and logs.token_logprobs is not None
    assert math.fsum(logs.token_logprobs) == pytest.approx(generator.score([TEXT])[0].log_probability, abs=1e-3)


def test_openai_streams(theirs: openai.OpenAI) -> None:
    asked = {"model": "generate", "prompt": TEXT, "seed": 4, "max_tokens": 12}
    whole = theirs.completions.create(**asked)
    chunks = list(theirs.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage and len({chunk.id for chunk in chunks}) == 1


def test_openai_embeddings(theirs: openai.OpenAI, folder: Path) -> None:
    own = Filler.load(folder / "fill").vectors([TEXT, "a man"])
    packed = theirs.embeddings.create(model="fill", input=[TEXT, "a man"])  # their client asks for base64 by itself
    plain = theirs.embeddings.create(model="fill", input=TEXT, encoding_format="float")
    assert np.allclose([each.embedding for each in packed.data], own, atol=1e-6)
    assert np.allclose(plain.data[0].embedding, own[0]) and packed.usage.prompt_tokens > 2


def test_openai_refusals_are_in_its_own_words(theirs: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no models for chats") as refused:
        theirs.chat.completions.create(model="generate", messages=[{"role": "user", "content": "hello"}])
    assert refused.value.code == "unsupported_endpoint" and refused.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as unknown:
        theirs.completions.create(model="nothing", prompt=TEXT)
    assert unknown.value.code == "model_not_found"
    for wrong in (
        {"logit_bias": {"3": 1}},
        {"frequency_penalty": 1.0},
        {"max_tokens": 65},
        {"prompt": [3, 5]},
        {"n": 99},
    ):
        with pytest.raises(openai.BadRequestError):
            theirs.completions.create(**{"model": "generate", "prompt": TEXT, **wrong})
    with pytest.raises(openai.BadRequestError, match="is a model to fill"):
        theirs.completions.create(model="fill", prompt=TEXT)


# --- Hugging Face


def hugging(client: Client, name: str) -> InferenceClient:
    return InferenceClient(model=f"{client.address}/hf/{name}")


def test_hugging_face_reads(client: Client, folder: Path, generator: Generator) -> None:
    labels = hugging(client, "classify").text_classification(TEXT, top_k=2)
    own = regard.load(folder / "classify", task="classify").classify(TEXT)
    assert [(each.label, each.score) for each in labels] == [*own.probabilities.items()][:2]
    guesses = hugging(client, "fill").fill_mask("two [MASK] sleep", top_k=3)
    filled = Filler.load(folder / "fill").fill("two [MASK] sleep", 3)
    assert [each.token_str for each in guesses] == [each.token for each in filled.gaps[0]]
    assert guesses[0].sequence == filled.text and guesses[0].score == pytest.approx(filled.gaps[0][0].probability)
    vectors = hugging(client, "fill").feature_extraction(TEXT)
    assert np.allclose(vectors, Filler.load(folder / "fill").vectors([TEXT]), atol=1e-6)
    text = hugging(client, "translate").translation(TEXT, src_lang="en", tgt_lang="de").translation_text
    assert text == Translator.load(folder / "translate").translate(TEXT).text


def test_hugging_face_generates(client: Client, generator: Generator) -> None:
    theirs, greedy = hugging(client, "generate"), generator.generate(TEXT, sample=False, max_length=6)
    assert theirs.text_generation(TEXT, max_new_tokens=6) == greedy.text
    told = theirs.text_generation(TEXT, max_new_tokens=6, details=True)
    assert told.details is not None and told.details.finish_reason == "length"
    assert [each.id for each in told.details.tokens] == list(greedy.ids)
    assert "".join(theirs.text_generation(TEXT, max_new_tokens=6, stream=True)) == greedy.text


def test_hugging_face_sees(client: Client, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    label = regard.load(folder / "classify-pictures", task="classify-pictures").classify(tmp_path / "a.png")
    assert hugging(client, "classify-pictures").image_classification(picture(), top_k=2)[0].label == label.label
    caption = regard.load(folder / "caption", task="caption").caption(tmp_path / "a.png")
    assert hugging(client, "caption").image_to_text(picture()).generated_text == caption.text
    question = "is there a ring ?"
    answer = regard.load(folder / "answer", task="answer").answer(tmp_path / "a.png", question)
    found = hugging(client, "answer").visual_question_answering(picture(), question)
    assert found[0].answer == answer.answer and found[0].score == pytest.approx(answer.probability)


def test_hugging_faces_fields_come_in_a_form_as_well(client: Client) -> None:
    """A picture as a file of a form, with the other fields beside it."""
    for name, fields in (("caption", {}), ("answer", {"question": "is there a ring ?", "parameters": '{"top_k": 2}'})):
        files = {"image" if fields else "inputs": ("a.png", picture(), "image/png")}
        found = httpx.post(f"{client.address}/hf/{name}", data=fields, files=files)
        body = {"inputs": base64.b64encode(picture()).decode(), **fields}
        body |= {"parameters": {"top_k": 2}} if fields else {}
        assert found.status_code == 200 and found.json() == client.json(f"/hf/{name}", body)
    wrong = httpx.post(f"{client.address}/hf/caption", data={"parameters": "no JSON"}, files={"inputs": picture()})
    assert wrong.status_code == 400
    assert httpx.post(f"{client.address}/hf/caption", data={"a": "b"}, files={"inputs": picture()}).status_code == 400
    assert httpx.post(f"{client.address}/hf/classify", files={"inputs": (None, TEXT)}).json()[0][0]["label"]


# --- The schema


def test_no_request_of_the_schema_fails_the_server(client: Client) -> None:
    """Schemathesis makes requests of every route, good and bad; whatever they are, the answer is no server error."""
    schema = schemathesis.openapi.from_url(f"{client.address}/openapi.json")
    asked: set[str] = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate], database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: schemathesis.Case) -> None:
            if case.body is not NOT_SET and isinstance(case.body, dict) and "model" in case.body:
                case.body["model"] = MODELS.get(case.path.rpartition("/")[2], "translate")
            if "name" in case.path_parameters and case.path.startswith(("/hf", "/api/models")):
                case.path_parameters["name"] = "classify"
            case.validate_response(case.call(timeout=60), checks=[not_a_server_error])

        ask()
        asked.add(operation.label)
    assert {"POST /translate", "POST /v1/completions", "POST /hf/{name}", "POST /api/look", "POST /api/models"} <= asked
