"""The service's own API against the same asked in Python; what it keeps, what it counts, and how many it takes."""

from __future__ import annotations

import base64
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Client, picture, save_bundles, serving, small, wait_for

import regard
from regard.attention import Pin, Remove, intervene
from regard.studio.config import Limits
from regard.studio.metrics import Histogram
from regard.tasks.generate.predictor import Generator
from regard.tasks.run import RunResult
from regard.tasks.translate.predictor import Translator

TEXT = "two dogs sleep"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("served")
    save_bundles(here)
    return here


@pytest.fixture(scope="module")
def client(folder: Path, tiny_run: RunResult) -> Iterator[Client]:
    models = tuple(path for path in folder.iterdir() if path.is_dir())
    with serving(small(folder, models, page=True).model_copy(update={"runs": tiny_run.folder.parent})) as found:
        yield found


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder / "translate")


def events(body: bytes) -> list[tuple[str, Any]]:
    """Server-Sent Events by name."""
    parts = [part.split(b"\n", 1) for part in body.strip().split(b"\n\n")]
    return [(name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: "))) for name, data in parts]


# --- Models


def test_the_list_has_every_model_by_a_name_that_is_no_path(client: Client, tiny_run: RunResult) -> None:
    found = {each["name"]: each for each in client.json("/api/models")["models"] if not each["shipped"]}
    tasks = {"translate", "generate", "fill", "classify", "classify-pictures", "classify-graphs", "caption", "answer"}
    assert found.keys() == tasks | {"names", "run"}
    assert not any("/" in name for name in found)
    assert found["run"]["abilities"] == ["translate", "look", "walk", "heads"] and len(found["run"]["examples"]) == 6
    assert found["translate"]["abilities"] == ["translate", "look", "walk"]  # no texts to measure heads on
    assert found["translate"]["languages"] == ["en", "de"] and found["translate"]["scores"] == {"bleu": 1.5}
    assert found["run"]["parameters"] == sum(p.numel() for p in regard.load(tiny_run.folder).model.parameters())


def test_a_model_in_detail(client: Client, translator: Translator) -> None:
    found = client.json("/api/models/translate")
    assert found["card"].startswith("# A transformer")
    assert found["tokenizer"]["sizes"]["source"] == translator.tokenizers.source.size
    assert client.json("/api/models/translate/layers")["layers"]["parameters"] == found["parameters"]
    assert client.json("/api/models/run")["training"]["seed"] == 1


def test_tokens(client: Client, translator: Translator) -> None:
    found = client.json("/api/tokens", {"model": "translate", "text": TEXT})
    ids = translator.tokenizers.source.encode(TEXT)
    assert [each["id"] for each in found["tokens"]] == ids and found["unknown"] == 0
    assert "".join(each["label"] for each in found["tokens"]).strip() == TEXT
    gap = client.json("/api/tokens", {"model": "fill", "text": "two [MASK] sleep"})["tokens"]
    assert [each["special"] for each in gap].count(True) == 1


# --- Texts


def test_a_translation_is_the_one_that_python_gives(client: Client, translator: Translator) -> None:
    asked = {"text": TEXT, "n_best": 3, "beam": 4, "max_length": 7}
    found = client.json("/api/translate", {"model": "translate", **asked})
    own = translator.translate(TEXT, n_best=3, beam=4, max_length=7)
    assert found["ids"] == list(own.ids) and found["score"] == pytest.approx(own.score, abs=1e-5)
    assert [each["text"] for each in found["alternatives"]] == [each.text for each in own.alternatives]
    seen = client.json("/api/translate", {"model": "translate", "attention": True, **asked})["attention"]
    assert np.allclose(
        list(seen["layers"].values()), list(translator.attention(TEXT, own.ids).layers.values()), atol=1e-5
    )


def test_a_translation_goes_on_from_a_prefix(client: Client, translator: Translator) -> None:
    """Greedily, from its own beginning, it is the same; from another, its numbers are those of the whole text."""
    greedy = client.json("/api/translate", {"model": "translate", "text": TEXT, "beam": 1, "max_length": 7})
    again = client.json(
        "/api/translate",
        {"model": "translate", "text": TEXT, "beam": 1, "max_length": 7, "prefix": greedy["ids"][:3]},
    )
    assert again["ids"] == greedy["ids"]
    assert again["log_probability"] == pytest.approx(greedy["log_probability"], abs=1e-4)
    assert again["score"] == pytest.approx(greedy["score"], abs=1e-4)
    other = [translator.tokenizers.target.encode("tree")[0], 41]
    found = client.json(
        "/api/translate", {"model": "translate", "text": TEXT, "prefix": other, "max_length": 6, "n_best": 2}
    )
    for each in (found, *found["alternatives"]):
        assert each["ids"][:2] == other and len(each["ids"]) <= 6
        whole = translator.read_ids(translator.tokenizers.source.encode(TEXT), each["ids"]).log_probabilities()
        assert each["token_log_probabilities"] == pytest.approx(whole.tolist(), abs=1e-4)
    assert found["score"] >= found["alternatives"][0]["score"]
    with pytest.raises(regard.UsageError, match="no translation holds the id 9999"):
        translator.translate(TEXT, prefix=[9999])
    with pytest.raises(regard.UsageError, match="takes no prefix"):
        translator.translate(TEXT, prefix=[41], engine="ctranslate2")


def test_changes_are_those_of_python(client: Client, translator: Translator) -> None:
    changes = [
        {"kind": "remove", "role": "cross", "layer": 0, "head": 1},
        {"kind": "pin", "role": "cross", "layer": 1, "head": 0, "query": 0, "weights": {"1": 0.25, "3": 0.75}},
    ]
    found = client.json("/api/translate", {"model": "translate", "text": TEXT, "max_length": 5, "changes": changes})
    with intervene(
        translator.model, Remove("cross", 0, head=1), Pin("cross", 1, head=0, row=0, weights=[0, 0.25, 0, 0.75])
    ):
        own = translator.translate(TEXT, max_length=5)
    assert found["log_probability"] == pytest.approx(own.log_probability, abs=1e-4)
    plain = client.json("/api/translate", {"model": "translate", "text": TEXT, "max_length": 5})
    assert abs(found["log_probability"] - plain["log_probability"]) > 1e-3
    none = client.ask("/api/look", {"model": "translate", "text": TEXT, "changes": [{"kind": "remove", "layer": 9}]})
    assert none.status == 400 and "met no attention" in none.json["error"]["message"]


def test_every_task_of_text_is_asked_with_changes(client: Client, folder: Path) -> None:
    """The same as in Python inside `intervene`, and something else than without."""
    change = [{"kind": "remove", "layer": 0}]
    bodies: dict[str, dict[str, Any]] = {
        "generate": {"prompt": TEXT, "max_length": 7, "sample": False, "beam": 1},
        "fill": {"text": "two [MASK] sleep"},
        "classify": {"text": TEXT},
    }
    for task, body in bodies.items():
        predictor: Any = regard.load(folder / task)
        with regard.intervene(predictor.model, regard.Remove(layer=0)):
            arguments = [body.get("text", TEXT)]
            own = getattr(predictor, task)(
                *arguments, **{name: body[name] for name in body if name not in ("text", "prompt")}
            )
        found = client.json(f"/api/{task}", {"model": task, **body, "changes": change})
        plain = client.json(f"/api/{task}", {"model": task, **body})
        if task == "classify":
            assert found["probability"] == pytest.approx(own.probability, abs=1e-5)
            assert found["probability"] != pytest.approx(plain["probability"], abs=1e-6)
        elif task == "fill":
            assert found["gaps"][0][0]["probability"] == pytest.approx(own.gaps[0][0].probability, abs=1e-5)
            assert found["gaps"] != plain["gaps"]
        else:
            assert found["token_log_probabilities"] == pytest.approx(own.token_log_probabilities, abs=1e-5)
            assert found["token_log_probabilities"] != plain["token_log_probabilities"]
    stream = {"model": "generate", **bodies["generate"], "changes": change, "stream": True}
    assert client.ask("/api/generate", stream).status == 422


def test_the_next_tokens_have_the_probabilities_of_the_search(client: Client) -> None:
    greedy = client.json("/api/translate", {"model": "translate", "text": TEXT, "beam": 1, "max_length": 5})
    for place in range(3):
        asked = {"model": "translate", "text": TEXT, "prefix": greedy["ids"][:place], "count": 4}
        found = client.json("/api/next", asked)["tokens"]
        assert found[0]["id"] == greedy["ids"][place] and len(found) == 4
        assert math.log(found[0]["probability"]) == pytest.approx(greedy["token_log_probabilities"][place], abs=1e-4)
    written = client.json("/api/generate", {"model": "generate", "prompt": TEXT, "sample": False, "max_length": 3})
    asked = {"model": "generate", "prompt": TEXT, "prefix": written["ids"][:1], "count": 100}
    found = client.json("/api/next", asked)["tokens"]
    assert found[0]["id"] == written["ids"][1] and math.fsum(each["probability"] for each in found) <= 1 + 1e-9


def test_a_beam_as_a_tree(client: Client, translator: Translator) -> None:
    found = client.json("/api/beam", {"model": "translate", "text": TEXT, "beam": 3, "max_length": 5})
    steps = found["steps"]
    for depth, step in enumerate(steps):
        assert 0 < len(step) <= 6 and len([each for each in step if each["state"] != "ended"]) <= 3
        for node in step:
            assert (node["parent"] is None) == (depth == 0)
            before = 0.0 if depth == 0 else steps[depth - 1][node["parent"]]["total"]
            assert node["total"] == pytest.approx(before + node["log_probability"], abs=1e-4)
            assert depth == 0 or steps[depth - 1][node["parent"]]["state"] == "alive"
    own = translator.translate(TEXT, beam=3, n_best=3, max_length=5)
    ended = sorted(node["score"] for step in steps for node in step if node["state"] == "ended")
    assert ended == pytest.approx(sorted(each.score for each in (own, *own.alternatives)), abs=1e-4)
    assert found["best"][0]["text"] == own.text


def test_generating_whole_and_piece_by_piece(client: Client, folder: Path) -> None:
    asked = {"model": "generate", "prompt": TEXT, "max_length": 9, "sample": True, "seed": 5, "alternatives": 3}
    whole = client.json("/api/generate", asked)
    own = Generator.load(folder / "generate").generate(TEXT, max_length=9, sample=True, seed=5)
    assert whole["ids"] == list(own.ids) and whole["text"] == own.text
    assert [step["id"] for step in whole["steps"]] == whole["ids"]
    logs = [math.log(step["probability"]) for step in whole["steps"]]
    assert logs == pytest.approx(whole["token_log_probabilities"][: len(logs)], abs=1e-4)
    best = [step["alternatives"][0]["probability"] for step in whole["steps"]]
    assert all(most >= step["probability"] for most, step in zip(best, whole["steps"], strict=True))
    streamed = client.ask("/api/generate", {**asked, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *pieces, (last, done) = events(streamed.body)
    assert last == "done" and done == whole
    assert "".join(piece["text"] for _, piece in pieces) == whole["text"]


def test_gaps_vectors_and_labels(client: Client, folder: Path) -> None:
    filler, classifier = regard.load(folder / "fill", task="fill"), regard.load(folder / "classify", task="classify")
    found = client.json("/api/fill", {"model": "fill", "text": "two [MASK] sleep", "top": 2})
    assert found == json.loads(json.dumps(filler.fill("two [MASK] sleep", 2).data()))
    vectors = client.json("/api/vectors", {"model": "fill", "texts": ["a man", TEXT]})
    assert np.allclose([each["vector"] for each in vectors], filler.vectors(["a man", TEXT]))
    label = client.json("/api/classify", {"model": "classify", "text": TEXT, "words": True})
    words = label.pop("words")
    assert label == json.loads(json.dumps(classifier.classify(TEXT).data()))
    assert "".join(each["text"] for each in words) == TEXT and sum(each["weight"] or 0 for each in words) > 0


@pytest.mark.parametrize("task", ["classify-pictures", "caption", "answer"])
def test_pictures_in_a_form_and_in_base64(client: Client, task: str) -> None:
    fields = {"model": task, **({"question": "is there a ring ?"} if task == "answer" else {})}
    found = client.json(f"/api/{task}", {**fields, "picture": base64.b64encode(picture()).decode()})
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    file = b'--x\r\nContent-Disposition: form-data; name="picture"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    form = "".join(parts).encode() + file + picture() + b"\r\n--x--\r\n"
    assert client.json(f"/api/{task}", form, Content_Type="multipart/form-data; boundary=x") == found
    if task != "classify-pictures":  # of a convnet without attention there is nothing to see
        assert len(found["attention"]["panels"]) >= 4 and found["attention"]["width"] == 40


# --- Looking


def test_maps_one_by_one(client: Client, folder: Path) -> None:
    predictor = regard.load(folder / "translate")
    found = client.json("/api/look", {"model": "translate", "text": TEXT, "second": "sgod owt"})
    own = predictor.attentions(TEXT, "sgod owt")
    assert found["role"] == "cross" and set(found["roles"]) == {"cross", "self", "causal"}
    assert tuple(found["source"]) == own.source and tuple(found["target"]) == own.target
    assert [each["heads"] for each in found["layers"]] == [3, 3] and found["difference"] < 1e-4
    for place, weights in [
        ("1/2", own.map(1, 2).weights), ("0/mean", own.map(0).weights), ("mean/mean", own.map().weights),
        ("1/0?role=causal", own.of("causal").map(1, 0).weights),
    ]:  # fmt: skip
        answer = client.ask(f"/api/look/{found['id']}/{place}")
        size = int(answer.headers["x-rows"]), int(answer.headers["x-columns"])
        peak = float(answer.headers["x-peak"])
        bytes_ = np.frombuffer(answer.body, np.uint8).reshape(size)
        assert size == weights.shape and peak == pytest.approx(np.nanmax(weights), abs=1e-6)
        masked, last = np.isnan(weights), 254 if np.isnan(weights).any() else 255
        assert answer.headers.get("x-masked") == ("255" if masked.any() else None)
        assert (bytes_[masked] == 255).all()
        assert np.abs(bytes_ / last * peak - weights)[~masked].max() <= peak / last
    row = client.json(f"/api/look/{found['id']}/1/2?row=3")["weights"]
    assert row == pytest.approx(own.map(1, 2).weights[3].tolist(), abs=1e-6)
    masked = client.json(f"/api/look/{found['id']}/0/0?role=causal&row=0")["weights"]
    assert masked[0] == pytest.approx(1.0) and masked[1:] == [None] * (len(masked) - 1)


def test_a_translation_is_looked_at_in_its_own_tokens(client: Client, folder: Path) -> None:
    """Cut anew, the text of a translation may be other tokens than the model wrote."""
    tokenizer = regard.load(folder / "translate").tokenizers.target
    plain = [token for token in range(tokenizer.size) if token not in tokenizer.specials.all]
    ids = next([a, b] for a in plain for b in plain if len(tokenizer.encode(tokenizer.decode([a, b]))) != 2)
    found = client.json("/api/look", {"model": "translate", "text": TEXT, "written": ids})
    assert len(found["target"]) == len(ids) + 1
    assert client.ask("/api/look", {"model": "generate", "text": TEXT, "written": ids}).status == 400
    assert client.ask("/api/look", {"model": "translate", "text": TEXT, "written": [10**6]}).status == 422


def test_pictures_to_try(client: Client) -> None:
    models = {model["name"]: model for model in client.json("/api/models")["models"]}
    for name in ("caption", "answer", "classify-pictures"):
        examples = models[name]["examples"]
        answers = [client.ask(example["picture"]) for example in examples]
        assert len({answer.body for answer in answers}) == 6
        assert {answer.headers["content-type"] for answer in answers} == {"image/png"}
        assert all(("question" in example) == (name == "answer") for example in examples)
    assert client.ask("/api/models/caption/examples/6").status == 404
    assert client.ask("/api/models/translate/examples/0").status == 404


def test_scores_are_the_log_probabilities_of_what_is_written(client: Client, folder: Path) -> None:
    """Of a translation those that its search found; of a text those that the language model's own `score` sums."""
    asked = {"model": "translate", "text": TEXT}
    plain = client.json("/api/translate", {**asked, "beam": 1, "max_length": 7})
    found = client.json("/api/score", {**asked, "written": plain["ids"]})["log_probabilities"]
    assert found[:7] == pytest.approx(plain["token_log_probabilities"][:7], abs=1e-4) and len(found) == 8  # and the end
    change = {"kind": "remove", "role": "cross", "layer": 0, "head": 1}
    without = client.json("/api/score", {**asked, "written": plain["ids"], "changes": [change]})
    assert without["loss"] != pytest.approx(-np.mean(found), abs=1e-5)
    whole = client.json("/api/score", {"model": "generate", "text": TEXT})
    own = Generator.load(folder / "generate").score([TEXT])[0].log_probability
    assert math.fsum(whole["log_probabilities"]) == pytest.approx(own, abs=1e-3)
    assert whole["loss"] == pytest.approx(-np.mean(whole["log_probabilities"]))
    assert client.ask("/api/score", {"model": "classify", "text": TEXT}).status == 400


def test_a_walk(client: Client, folder: Path) -> None:
    found = client.json("/api/walk", {"model": "generate", "text": TEXT, "layer": 1, "head": 2, "query": 3})
    own = regard.walk(regard.load(folder / "generate"), TEXT, layer=1, head=2, query=3)
    assert found == json.loads(own.json())


def test_heads_are_a_job(client: Client, tiny_run: RunResult) -> None:
    job = client.json("/api/heads", {"model": "run", "texts": 5})["job"]
    wait_for(lambda: client.json(f"/api/jobs/{job}")["state"] in ("done", "failed"))
    found = client.json(f"/api/jobs/{job}")
    assert found["state"] == "done", found
    assert len(found["result"]["heads"]) == 18 and found["done"] == found["total"] > 18
    assert client.ask("/api/jobs/another").status == 404
    none = client.json("/api/heads", {"model": "translate"})["job"]
    wait_for(lambda: client.json(f"/api/jobs/{none}")["state"] == "failed")
    assert "no texts to look at" in client.json(f"/api/jobs/{none}")["error"]["message"]
    stopped = client.ask(f"/api/jobs/{job}", method="DELETE")
    assert stopped.status == 200


def test_runs_and_how_their_attention_formed(client: Client, tiny_run: RunResult) -> None:
    (listed,) = client.json("/api/runs")["runs"]
    assert listed["id"] == "run" and listed["state"] == "finished" and listed["steps"] == 4
    found = client.json("/api/runs/run")
    log = (tiny_run.folder / "log.jsonl").read_text().splitlines()
    assert found["rows"] == [json.loads(line) for line in log] and found["steps_probed"][-1] == 4
    probe = client.json("/api/runs/run/probes/0")
    shape = len(probe["by_role"]["cross"]["target"]), len(probe["by_role"]["cross"]["source"])
    last = client.ask(f"/api/runs/run/probes/0/4/{len(probe['by_role']['cross']['layers']) - 1}/mean?role=cross")
    assert (int(last.headers["x-rows"]), int(last.headers["x-columns"])) == shape and len(last.body) == math.prod(shape)
    row = client.json("/api/runs/run/probes/0/2/0/0?role=cross&row=1")["weights"]
    assert math.fsum(row) == pytest.approx(1, abs=1e-4)
    assert client.ask("/api/runs/..%2Frun").status == 404 and client.ask("/api/runs/run/probes/99").status == 400


# --- The state of the service


def test_metrics_are_what_a_parser_of_prometheus_reads(client: Client) -> None:
    client.json("/api/translate", {"model": "translate", "text": TEXT, "max_length": 5})
    answer = client.ask("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert {
        "regard_requests",
        "regard_request_seconds",
        "regard_batch_size",
        "regard_tokens",
        "regard_queue_depth",
    } <= {*found}
    asked = {"method": "POST", "route": "/api/translate", "status": "200"}
    (count,) = [sample.value for sample in found["regard_requests"].samples if sample.labels == asked]
    assert count >= 1
    seconds = {
        s.name: s.value for s in found["regard_request_seconds"].samples if s.labels.get("route") == "/api/translate"
    }
    assert seconds["regard_request_seconds_count"] == seconds["regard_request_seconds_bucket"]  # the last is +Inf
    written = [s.value for s in found["regard_tokens"].samples if s.labels == {"model": "translate", "side": "written"}]
    assert written[0] >= 5
    sizes = {s.name: s.value for s in found["regard_batch_size"].samples if s.labels.get("model") == "translate"}
    assert sizes["regard_batch_size_sum"] >= sizes["regard_batch_size_count"] >= 5  # a step for each token
    (waiting,) = found["regard_queue_depth"].samples
    assert waiting.value == 0 and found["regard_queue_limit"].samples[0].value == 256


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram("x", "y", (1.0, 2.5), ("a",))
    for value in (0.5, 1.0, 2.0, 7.0):
        histogram.observe(value, 'q"\n')
    (family,) = text_string_to_metric_families("\n".join(histogram.lines()) + "\n")
    assert [(s.labels.get("le"), s.value) for s in family.samples] == [
        ("1", 2), ("2.5", 3), ("+Inf", 4), (None, 10.5), (None, 4),
    ]  # fmt: skip
    assert family.samples[0].labels["a"] == 'q"\n'


def test_the_log_has_a_line_of_each_request_and_no_text(client: Client) -> None:
    client.json("/api/translate", {"model": "translate", "text": "a secret", "max_length": 5})
    wait_for(lambda: client.log[-1]["path"] == "/api/translate")
    line = client.log[-1]
    assert line["method"] == "POST" and line["status"] == 200 and line["model"] == "translate"
    assert line["tokens_read"] > 0 and line["tokens_written"] == 5 and line["ms"] > 0
    assert "secret" not in json.dumps(client.log)


def test_the_schema_and_its_page_load_nothing_from_elsewhere(client: Client) -> None:
    schema = client.json("/openapi.json")
    page = client.ask("/docs").body.decode()
    for path in schema["paths"]:
        assert path in page
    assert "http://" not in page and "https://" not in page and "<script" not in page and "style=" not in page
    assert client.ask("/static/documentation.css").headers["content-type"].startswith("text/css")


def test_clients_are_searched_for_together_and_get_what_they_would_alone(folder: Path, translator: Translator) -> None:
    texts = [f"{count} dogs sleep under a tree" for count in range(11)]
    found: dict[int, Any] = {}
    with serving(small(folder, (folder / "translate",))) as client:

        def ask(place: int) -> None:
            asked = {"model": "translate", "text": texts[place], "sample": True, "seed": place % 2, "max_length": 40}
            found[place] = client.json("/api/translate", asked)

        client.json("/api/translate", {"model": "translate", "text": "a", "max_length": 1})  # it is loaded now
        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        steps = client.server.guard.app.state.service.decoding.steps()["translate"]
        assert max(steps) > 1  # sources of several clients were read in one step
    for place, text in enumerate(texts):
        assert found[place]["ids"] == list(translator.translate(text, sample=True, seed=place % 2, max_length=40).ids)


def test_the_model_that_was_not_asked_for_longest_is_dropped(folder: Path) -> None:
    sizes = {name: (folder / name / "model.safetensors").stat().st_size for name in ("translate", "generate", "fill")}
    limits = Limits(model_bytes=sizes["translate"] + sizes["generate"] + sizes["fill"] - 1)
    with serving(small(folder, tuple(folder / name for name in sizes), limits)) as client:
        for name in ("translate", "generate", "translate", "fill"):
            client.json("/api/tokens", {"model": name, "text": "a"})
        loaded = [each["name"] for each in client.json("/api/models")["models"] if each["loaded"]]
        assert loaded == ["translate", "fill"]
        assert client.json("/api/tokens", {"model": "generate", "text": "a"})["tokens"]
    with serving(small(folder, (folder / "fill",), Limits(model_bytes=100))) as client:
        answer = client.ask("/api/tokens", {"model": "fill", "text": "a"})
        assert answer.status == 422 and "keeps at most 100" in answer.json["error"]["message"]


def test_the_page_is_served_beside_the_routes_and_nothing_else_of_the_disk(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("<!doctype html><title>studio</title>")
    (tmp_path / "static" / "studio.js").write_text("export {}")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr("regard.studio.app.STATIC", tmp_path / "static")
    with serving(small(folder, (folder / "fill",), page=True)) as client:
        assert b"<title>studio" in client.ask("/").body
        script = client.ask("/static/studio.js")
        assert "javascript" in script.headers["content-type"] and "content-security-policy" in script.headers
        for path in ("/static/../secret", "/static/%2e%2e/secret", "/static/..%2fsecret", "/static//etc/passwd"):
            assert client.ask(path).status == 404
        assert client.ask("/static/documentation.css").status == 200
        service = client.server.guard.app.state.service
        service.stopping = True
        assert client.ask("/ready").status == 503 and client.ask("/health").status == 200
