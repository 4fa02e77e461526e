"""CTranslate2: models of ours give the same log-probabilities there, and its search the same texts as ours."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import SIZES, TEXTS, our_bundle
from torch import Tensor

from regard.attention import Remove, intervene
from regard.bundle import Bundle, BundleConfig, save_bundle
from regard.cli.main import run
from regard.decode.config import DecodeConfig
from regard.errors import RegardError, UsageError
from regard.interop import ctranslate2_engine, family
from regard.interop.ctranslate2_engine import Found, check_options, choose, converted
from regard.interop.to_ctranslate2 import export_ctranslate2
from regard.models.config import (
    GPT1Config,
    GPT2Config,
    GPT3Config,
    LlamaConfig,
    LSTMConfig,
    Seq2SeqConfig,
    TransformerConfig,
)
from regard.models.table import build
from regard.tasks.generate.predictor import Generator
from regard.tasks.translate.predictor import Translator
from regard.tokens import BEGIN, END, PAD, UNKNOWN, TokenizerPair, TokensConfig, train_tokenizer

ctranslate2 = pytest.importorskip("ctranslate2")

SMALL: dict[str, Any] = {
    "encoder_layers": 3, "decoder_layers": 2, "width": 24, "heads": 3, "feed_forward": 37, "max_length": 89,
}  # fmt: skip
ROUNDED = 2e-5  # of a log-probability, in float32


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted models are kept there by all tests of this file."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("REGARD_CACHE", str(folder))
    return folder


def pair_bundle(joint: bool = True, end: float = 1.0, **changes: Any) -> Bundle:
    tokens = TokensConfig(kind="bpe", size=300, joint=joint)
    source = train_tokenizer(TEXTS, tokens)
    target = source if joint else train_tokenizer(TEXTS[:3], TokensConfig(kind="bpe", size=291))
    config, sizes = TransformerConfig(**{**SMALL, **changes}), (source.size, target.size)
    model = inclined(lively(build("translate", config, sizes)), end)
    settings = BundleConfig(task="translate", tokens=tokens, vocabulary=sizes, model=config)
    return Bundle(settings, model, TokenizerPair(source, target), {})


def lively(model: Any) -> Any:
    """Random weights so large that what is written depends on what was read."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.2 if parameter.dim() == 1 else 0.3 if "table" in name else 3 / parameter.size(1) ** 0.5
            parameter.copy_(spread * torch.randn(parameter.shape, generator=generator) + name.endswith("norm.weight"))
    return model.eval()


def inclined(model: Any, end: float) -> Any:
    """As training does: what may never be said is as good as impossible, and texts end after a while."""
    last = model.decoder_norm if model.config.norm == "pre" else model.decoder[-1].around_feed_forward.norm
    way = torch.nn.functional.normalize(torch.randn(24, generator=torch.Generator().manual_seed(3)), dim=0)
    with torch.no_grad():
        last.bias += 4 * way
        for index, size in {PAD: -6.0, BEGIN: -6.0, UNKNOWN: -6.0, END: end}.items():
            model.output.weight[index] = size * way
    return model


def sentences(count: int, seed: int = 5) -> list[str]:
    numbers = random.Random(seed)
    words = " ".join(TEXTS).split()
    return [" ".join(numbers.choices(words, k=numbers.randint(1, 9))) for _ in range(count)]


# --- The weights


TRANSFORMERS = [
    pytest.param({"positions": "rotary"}, True, id="pre-rotary"),
    pytest.param({"positions": "rotary", "norm": "post", "tied": "target"}, False, id="post-rotary-two-vocabularies"),
    pytest.param({"positions": "sinusoidal", "norm": "post", "activation": "gelu"}, True, id="post-sinusoidal"),
    pytest.param(
        {"positions": "learned", "tied": "none", "scaled": False, "random_offset": 7}, True, id="learned-untied"
    ),
]


@pytest.mark.parametrize(("changes", "joint"), TRANSFORMERS)
def test_a_transformer_scores_as_ours(changes: dict[str, Any], joint: bool, tmp_path: Path) -> None:
    bundle = pair_bundle(joint, **changes)
    folder, pair = export_ctranslate2(bundle, tmp_path / "out"), bundle.tokenizers
    reads, writes = (text.vocabulary(text.size) for text in (pair.source, pair.target))
    pairs = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
    theirs = ctranslate2.Translator(str(folder), compute_type="float32").score_batch(
        [[reads[index] for index in pair.source.encode(source)] for source, _ in pairs],
        [[writes[index] for index in pair.target.encode(target)] for _, target in pairs],
    )
    for ours, found in zip(Translator(bundle).score(pairs), theirs, strict=True):
        assert len(found.log_probs) == ours.tokens and found.tokens[-1] == "</s>"
        assert sum(found.log_probs) == pytest.approx(ours.log_probability, rel=ROUNDED)


GPTS = [
    pytest.param(GPT2Config(**SIZES), id="gpt2"),
    pytest.param(GPT1Config(**SIZES, activation="relu"), id="gpt1-post"),
    pytest.param(GPT3Config(**SIZES, band=0, bias=False, tied=False, positions="sinusoidal"), id="gpt3-sinusoidal"),
    pytest.param(LlamaConfig(**SIZES, groups=2, rotary_base=700.0, rotary_scale=1.7), id="llama-interpolated"),
    pytest.param(LlamaConfig(**SIZES, bias=True, tied=False, epsilon=0.01), id="llama-biases"),
    pytest.param(GPT2Config(**SIZES, positions="rotary", groups=1, norm="post", norm_kind="rms"), id="gpt2-mixed"),
]


@pytest.mark.parametrize("config", GPTS)
@torch.inference_mode()
def test_a_language_model_scores_as_ours(config: Any, tmp_path: Path) -> None:
    bundle = our_bundle("generate", config)
    tokens = bundle.tokenizer.vocabulary(bundle.tokenizer.size)
    ids = [[bundle.tokenizer.specials.begin, *bundle.tokenizer.encode(text)][:29] for text in TEXTS]
    folder = export_ctranslate2(bundle, tmp_path / "out")
    theirs = ctranslate2.Generator(str(folder), compute_type="float32").score_batch(
        [[tokens[index] for index in each] for each in ids]
    )
    for each, found in zip(ids, theirs, strict=True):
        assert torch.allclose(torch.tensor(found.log_probs), own_scores(bundle.model, each), atol=5 * ROUNDED)


def own_scores(model: Any, ids: list[int]) -> Tensor:
    log_probs = model.output(model.read(torch.tensor([ids])))[0].log_softmax(-1)
    return log_probs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def test_vocabularies_keep_their_ids(tmp_path: Path) -> None:
    bundle = our_bundle("generate", GPT2Config(**SIZES))
    folder = export_ctranslate2(bundle, tmp_path / "out")
    tokens, config = (json.loads((folder / name).read_text()) for name in ("vocabulary.json", "config.json"))
    for text in TEXTS:
        ids = bundle.tokenizer.encode(text)
        assert [tokens[index] for index in ids] == bundle.tokenizer.labels(ids)
    assert len(tokens) == len(set(tokens)) == bundle.config.vocabulary[0]
    assert (config["bos_token"], config["eos_token"], config["unk_token"]) == ("<s>", "</s>", "<unk>")
    assert bundle.tokenizer.vocabulary(bundle.tokenizer.size + 2)[-1] == f"<no token {bundle.tokenizer.size + 1}>"


REFUSED = [
    (
        TransformerConfig(**SMALL, norm="none"),
        "CTranslate2 has no equal for model.norm = 'none'; .* 'pre' or 'post' there",
    ),
    (
        TransformerConfig(**SMALL, positions="alibi"),
        "model.positions = 'alibi'; .* 'rotary' or 'sinusoidal' or 'learned'",
    ),
    (TransformerConfig(**SMALL, residual=False), "model.residual = False"),
    (TransformerConfig(**SMALL, decoder_attention={"kind": "linear"}), "model.decoder_attention = 'linear'"),
    (Seq2SeqConfig(), "a seq2seq for translate has no equal in CTranslate2"),
    (LSTMConfig(), "a lstm for generate has no equal in CTranslate2; transformer for translate, and gpt1"),
    (GPT3Config(**SIZES), "model.band = 128"),
    (GPT2Config(**SIZES, experts=2), "model.experts = 2"),
    (LlamaConfig(**SIZES, positions="t5"), "model.positions = 't5'"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_what_it_cannot_express_is_refused_in_words(config: Any, words: str, tmp_path: Path) -> None:
    task = "translate" if config.kind in ("transformer", "seq2seq") else "generate"
    sizes = (97, 97) if task == "translate" else (97,)
    bundle = Bundle(BundleConfig(task=task, model=config, vocabulary=sizes), build(task, config, sizes), None, {})
    with pytest.raises(RegardError, match=words):
        export_ctranslate2(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_the_library_it_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(family, "import_module", missing)
    with pytest.raises(RegardError, match=r"ctranslate2 is not installed .*; pip install 'regard\[fast\]'"):
        export_ctranslate2(pair_bundle(), tmp_path / "out")


# --- The search of translations


SEARCHES = [
    {"beam": 1},
    {"beam": 1, "max_length": 4},
    {"beam": 1, "min_length": 7},
    {"beam": 4, "stopping": "early"},
    {"beam": 3, "stopping": "early", "length_penalty": "power", "alpha": 1.0, "n_best": 3},
    {"beam": 3, "stopping": "early", "alpha": 1.3, "n_best": 2},
    {"beam": 3, "stopping": "early", "length_penalty": "none", "n_best": 2},
    {"beam": 4, "stopping": "exact", "length_penalty": "none"},
    {"beam": 3, "stopping": "early", "max_length": 5, "length_penalty": "power"},
]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(pair_bundle(positions="rotary"))


@pytest.mark.parametrize("options", SEARCHES, ids=lambda each: ",".join(f"{k}={v}" for k, v in each.items()))
def test_the_same_translations(translator: Translator, options: dict[str, Any]) -> None:
    texts = [*sentences(37), "", " "]
    ours = translator.translate(texts, **options)
    theirs = translator.translate(texts, engine="ctranslate2", batch_sentences=13, **options)
    assert len({len(each.ids) for each in ours}) > 3 or options.get("max_length")  # they end of themselves
    for own, other in zip(ours, theirs, strict=True):
        for one, two in zip((own, *own.alternatives), (other, *other.alternatives), strict=True):
            assert (one.ids, one.text) == (two.ids, two.text)
            assert one.score == pytest.approx(two.score, rel=1e-4)
            assert one.token_log_probabilities == pytest.approx(two.token_log_probabilities, rel=1e-3, abs=1e-3)


def test_most_is_searched_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is empty, or reaches its limit, is searched for by our own engine."""
    here: list[str] = []
    translator = Translator(pair_bundle(positions="rotary", end=2.0))
    search = translator._search
    monkeypatch.setattr(translator, "_search", lambda texts, *rest: here.extend(texts) or search(texts, *rest))
    translator.translate([*sentences(37), ""], engine="ctranslate2", beam=4, stopping="early")
    assert "" in here and len(here) <= 4


def test_tables_of_positions_end_somewhere() -> None:
    """A source longer than the table, or a text that would grow beyond it, is left to our own engine."""
    bundle = pair_bundle(positions="sinusoidal", max_length=13)
    translator, texts = Translator(bundle), ["cat", " ".join(TEXTS[:2])]
    ours = translator.translate(texts, beam=1, max_length=40)
    theirs = translator.translate(texts, beam=1, max_length=40, engine="ctranslate2")
    assert [each.ids for each in ours] == [each.ids for each in theirs]
    assert max(len(each.ids) for each in ours) > 13 or len(bundle.tokenizers.source.encode(texts[1])) > 13


def test_attention_comes_with_either_engine(translator: Translator) -> None:
    ours = translator.translate("the cat sat", beam=1, attention=True)
    theirs = translator.translate("the cat sat", beam=1, attention=True, engine="ctranslate2")
    assert theirs.attention is not None and ours.attention is not None
    assert theirs.attention.data() == ours.attention.data()


def test_others_than_the_best_totals_cannot_win() -> None:
    """By hand: the shortest has the best total and the longest the best score; of two best, a third could be better."""
    options = DecodeConfig(beam=3, stopping="early", alpha=1.0)
    found = [Found((7,), END, -2.0), Found((7, 8), END, -2.1), Found((7, 8, 9, 5), END, -2.4)]
    best = choose(found, 20, options)
    assert best is not None and best[0].ids == (7, 8, 9, 5)  # -2.4 / (10 / 6) = -1.44, -2.1 / (8 / 6) = -1.58
    assert choose(found, 20, options.model_copy(update={"n_best": 2})) is None  # -2.41 over 5 tokens would be second
    assert choose([*found[:2], Found((7, 8, 9, 5), None, -2.4)], 20, options) is None
    assert choose(found, 4, options) is None  # at the limit ends are forced


# --- The search of texts


@pytest.mark.parametrize("config", [LlamaConfig(**SIZES, groups=2), GPT2Config(**SIZES)], ids=lambda each: each.kind)
@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({}, []),
        ({"max_length": 5}, []),
        ({"min_length": 9, "max_length": 31}, []),  # beyond the 29 positions of the second
        ({"max_length": 25}, ["a", "t"]),
        ({"beam": 3, "stopping": "early"}, []),
    ],
)
def test_the_same_texts(config: Any, options: dict[str, Any], stop: list[str]) -> None:
    bundle = our_bundle("generate", config)
    with torch.no_grad():
        row = bundle.model.output.weight
        row[list(bundle.tokenizer.specials.all - bundle.tokenizer.specials.ends)] = 0.0
        row[END] *= 1.5
    generator, prompts = Generator(bundle), ["", "the cat", "a dog ran", *TEXTS[:2]]
    options = {"sample": False, "max_length": 17, **options}
    ours = generator.generate(prompts, stop=stop, **options)
    theirs = generator.generate(prompts, stop=stop, engine="ctranslate2", **options)
    for own, other in zip(ours, theirs, strict=True):
        assert (own.text, own.tokens, own.finished) == (other.text, other.tokens, other.finished)
        assert own.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
        assert own.score == pytest.approx(other.score, abs=1e-4)


# --- What is refused, and what is kept


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample": True}, "draws random numbers of its own"),
        ({"beam": 5}, "once 5 sequences have ended.*stopping='early'"),
        ({"beam": 2, "n_best": 2, "length_penalty": "none"}, "once 2 sequences have ended"),
        ({"beam": 1, "softness": 0.5}, "no softness"),
        ({"beam": 2, "stopping": "early", "min_length": 3}, "shortest length.*min_length="),
    ],
)
def test_options_that_it_cannot_follow(options: dict[str, Any], words: str, translator: Translator) -> None:
    with pytest.raises(UsageError, match=words):
        check_options(DecodeConfig(**options))
    with pytest.raises(UsageError, match=words):
        translator.translate("a cat", engine="ctranslate2", **options)


def test_other_refusals(translator: Translator) -> None:
    with pytest.raises(UsageError, match="no engine ctranslate; did you mean ctranslate2"):
        translator.translate("a cat", engine="ctranslate")  # type: ignore[call-overload]
    with intervene(translator.model, Remove("cross", 0)):
        translator.translate("a cat", beam=1)
        with pytest.raises(UsageError, match="recorded or changed"):
            translator.translate("a cat", engine="ctranslate2", beam=1)
    generator = Generator(our_bundle("generate", LlamaConfig(**SIZES)))
    with pytest.raises(UsageError, match="whole texts, not pieces"):
        generator.generate("a", engine="ctranslate2", stream=print)
    with pytest.raises(UsageError, match="cannot end the sequences of a beam at a text"):
        generator.generate("a", engine="ctranslate2", stop=["x"], sample=False, beam=2, stopping="early")


def test_a_model_is_converted_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = pair_bundle(positions="learned")
    first = converted(bundle)
    assert first.parent == cache / "ctranslate2" and {path.name for path in first.iterdir()} >= {
        "model.bin",
        "config.json",
    }
    stamp = (first / "model.bin").stat().st_mtime_ns
    assert converted(bundle) == first and (first / "model.bin").stat().st_mtime_ns == stamp

    translator = Translator(bundle)
    before = translator.translate("the cat", engine="ctranslate2", beam=1)
    with torch.no_grad():
        bundle.model.output.weight[END] *= -1
    after = translator.translate("the cat", engine="ctranslate2", beam=1)
    assert before.ids != after.ids and after.ids == translator.translate("the cat", beam=1).ids
    assert converted(bundle) != first

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with torch.no_grad():
        bundle.model.output.weight[END] *= 2
    monkeypatch.setattr(ctranslate2_engine, "write_ctranslate2", broken)
    there = sorted(first.parent.iterdir())
    with pytest.raises(RegardError, match="No space left on device; make room, or set REGARD_CACHE"):
        converted(bundle)
    assert sorted(first.parent.iterdir()) == there


# --- The verbs


def test_the_verbs(tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> tuple[int, str, str]:
        code = run([*words])
        return code, *capsys.readouterr()

    model = str(tiny_run.folder)
    code, out, err = typed("export", model, "--to", "ctranslate2", "-o", str(tmp_path / "out"))
    assert code == 0 and out.strip() == str(tmp_path / "out") and "ctranslate2.Translator(" in err
    assert typed("export", model, "--to", "ctranslate2", "-o", str(tmp_path / "out"))[0] == 2
    code, _, err = typed("export", model, "--to", "ctranslate", "-o", str(tmp_path / "other"))
    assert code == 2 and "did you mean ctranslate2?" in err

    search = ("translate", "3 May 1999", "-m", model, "--device", "cpu", "--max-length", "9", "--json")
    for options in (("--beam", "1"), ("--beam", "3", "--stopping", "early")):
        ours, theirs = typed(*search, *options), typed(*search, *options, "--engine", "ctranslate2")
        assert ours[0] == theirs[0] == 0 and json.loads(ours[1])["text"] == json.loads(theirs[1])["text"]
    early, unsaid = (typed(*search, *more, "--engine", "ctranslate2") for more in (("--stopping", "early"), ()))
    assert unsaid[0] == 0 and unsaid[1] == early[1]  # it has no other way
    code, _, err = typed(*search, "--engine", "ctranslate2", "--stopping", "exact")
    assert code == 2 and "--stopping early" in err and "--beam 1" in err
    code, _, err = typed(*search, "--engine", "ctranslate2", "--beam", "1", "--remove", "cross:0:0")
    assert code == 2 and "leave out --engine" in err
    assert typed(*search, "--engine", "marian")[0] == 2


def test_the_verb_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save_bundle(tmp_path / "bundle", our_bundle("generate", LlamaConfig(**SIZES))))
    words = ["generate", "the cat", "-m", model, "-n", "7", "--json"]
    found = []
    for engine in ("regard", "ctranslate2"):
        assert run([*words, "--greedy", "--engine", engine]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["tokens"] == found[1]["tokens"]
    assert run([*words, "--engine", "ctranslate2"]) == 2
    assert "draws random numbers of its own" in (told := capsys.readouterr().err) and "--beam 1" in told
