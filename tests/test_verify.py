"""`regard.verify` passes sound bundles of every kind, and every invariant fails when what it guards is broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from regard.attention import AttentionCall, Lengths
from regard.attention.attend import attention_weights
from regard.attention.cache import StepCache
from regard.bundle import Bundle, BundleConfig
from regard.data.batch import LabelBatch, MaskedBatch, PairBatch, TextBatch
from regard.data.batches import generator
from regard.models.bert import Bert
from regard.models.classifier import Classifier
from regard.models.config import KINDS_OF, TransformerConfig
from regard.models.encoder_decoder import Memory
from regard.models.gpt import GPT, GPTState
from regard.models.language import LanguageModel, LSTMState
from regard.models.loss import Loss, Part
from regard.models.table import build, build_model
from regard.models.transformer import Transformer, TransformerDecoder, TransformerState
from regard.tasks.run import RunResult
from regard.tasks.table import TASKS
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig, train_tokenizer
from regard.verify import CHECKS, verify, verify_bundle

TEXTS = ["a man rides a red bike", "two dogs sleep under a tree", "the sun is bright today"] * 3


def make_bundle(model: dict[str, Any] | None = None, tokens: dict[str, Any] | None = None) -> Bundle:
    """A bundle with random weights."""
    settings = TokensConfig(**{"size": 300, "min_count": 1, **(tokens or {})})
    pair = TokenizerPair.train(TEXTS, [text[::-1] for text in TEXTS], settings)
    sizes = (pair.source.size, pair.target.size)
    small = {"encoder_layers": 1, "decoder_layers": 2, "width": 12, "heads": 3, "feed_forward": 17, "dropout": 0.1}
    config = TransformerConfig(**{**small, **(model or {})})
    torch.manual_seed(11)
    built = build_model(config, *sizes).eval()
    return Bundle(BundleConfig(tokens=settings, vocabulary=sizes, model=config), built, pair, {})


def failing(bundle: Bundle, *names: str) -> set[str]:
    """Names of the invariants that do not hold (among these, or all)."""
    return {check.name for check in verify(bundle, names or None) if check.passed is False}


STEPS = ("cached = uncached", "prompt at once = token by token", "reordered = recomputed")
FORWARD = (*STEPS, "batched = single", "padded = unpadded")
CAUSAL = "later tokens change nothing earlier"


# -- sound -------------------------------------------------------------------------------------------------------------


def test_a_trained_run_keeps_every_invariant(tiny_run: RunResult) -> None:
    checks = verify_bundle(tiny_run.folder)
    assert [check.name for check in checks] == list(CHECKS)
    assert [check for check in checks if check.passed is not True] == []
    details = {check.name: check.detail for check in checks}
    assert "float64 (1e-09 allowed)" in details["cached = uncached"] and "bit-equal" in details["reloaded = saved"]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ({"norm": "post", "activation": "gelu"}, {"kind": "byte"}),
        ({"positions": "learned", "max_length": 9, "tied": "target"}, {"joint": False}),
        ({"positions": "none", "tied": "none"}, {"kind": "word", "size": 40}),
        ({"attention_dropout": 0.2, "activation_dropout": 0.1}, {"kind": "character", "lowercase": True}),
    ],
)
def test_sound_bundles_of_every_kind(model: dict[str, Any], tokens: dict[str, Any]) -> None:
    assert failing(make_bundle(model, tokens)) == set()


def test_the_bundle_is_left_as_it_was() -> None:
    bundle = make_bundle()
    before = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    random = torch.random.get_rng_state()
    verify(bundle, ["accumulated = large batch", "resumed = uninterrupted"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in bundle.model.state_dict().items())
    assert all(parameter.grad is None for parameter in bundle.model.parameters())
    assert not bundle.model.training
    assert torch.equal(torch.random.get_rng_state(), random)


# -- sabotaged ---------------------------------------------------------------------------------------------------------


def test_a_stepper_with_a_wrong_position(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Transformer.step

    def late(self: Transformer, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        logits, after = step(self, ids, TransformerState(state.blocks, state.read + 1))
        return logits, TransformerState(after.blocks, state.read + 1)

    monkeypatch.setattr(Transformer, "step", late)
    assert failing(make_bundle(), *FORWARD) == {"cached = uncached", "reordered = recomputed"}


def test_a_decoder_that_sees_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(self: Transformer, ids: Tensor, memory: Memory) -> Tensor:
        x = self.target(ids)
        for block in self.decoder:
            x = block(x, None, memory.vectors, memory.mask)
        return self.decoder_norm(x)

    monkeypatch.setattr(Transformer, "decode", decode)
    assert {"cached = uncached", "padded = unpadded", CAUSAL} <= failing(make_bundle(), *FORWARD, CAUSAL)


def test_a_mask_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: Lengths, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return torch.ones(len(self.lengths), 1, 1, keys, dtype=torch.bool, device=device)

    monkeypatch.setattr(Lengths, "dense", everything)
    assert {"batched = single", "padded = unpadded"} <= failing(make_bundle(), *FORWARD)


def test_a_mask_that_only_the_steps_ignore(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Transformer.start

    def unmasked(self: Transformer, source: tuple[Tensor, Tensor], prefix: Tensor) -> tuple[Tensor, TransformerState]:
        _, state = start(self, source, prefix)
        for block in state.blocks:
            block.own.filled, block.memory = 0, replace(block.memory, mask=None)  # type: ignore[type-var]
        return self.step(prefix, TransformerState(state.blocks))

    monkeypatch.setattr(Transformer, "start", unmasked)
    assert {"cached = uncached", "padded = unpadded"} <= failing(make_bundle(), *FORWARD)


def test_a_state_that_is_not_reordered(monkeypatch: pytest.MonkeyPatch) -> None:
    reorder = Transformer.reorder

    def in_place(self: Transformer, state: TransformerState, parents: Tensor) -> TransformerState:
        width = len(state.blocks[0].own.keys) // len(parents)
        return reorder(self, state, (torch.arange(parents.size(1)) % width).expand_as(parents))

    monkeypatch.setattr(Transformer, "reorder", in_place)
    assert failing(make_bundle(), *FORWARD) == {"reordered = recomputed"}


def test_sources_that_are_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Transformer.keep

    def first(self: Transformer, state: TransformerState, rows: Tensor) -> TransformerState:
        return keep(self, state, torch.arange(len(rows)))

    monkeypatch.setattr(Transformer, "keep", first)
    assert failing(make_bundle(), *FORWARD) == {"reordered = recomputed"}


def test_a_model_that_looks_at_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Transformer.encode

    def centred(self: Transformer, ids: Tensor, lengths: Tensor) -> Memory:
        memory = encode(self, ids, lengths)
        return replace(memory, vectors=memory.vectors - memory.vectors[:, :1].mean(dim=0))

    monkeypatch.setattr(Transformer, "encode", centred)
    assert "batched = single" in failing(make_bundle(), *FORWARD)


def test_a_loss_that_is_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward

    def mean(self: Transformer, batch: PairBatch) -> Loss:
        parts = forward(self, batch).parts
        return Loss({name: Part(part.sum / part.count, part.count, part.weight) for name, part in parts.items()})

    monkeypatch.setattr(Transformer, "forward", mean)
    assert failing(make_bundle(), "accumulated = large batch", "padded = unpadded") == {"accumulated = large batch"}


def test_a_loss_that_counts_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(self: Transformer, batch: PairBatch) -> Loss:
        total = self.logits(batch).logsumexp(dim=-1).sum()
        return Loss({"loss": Part(total, batch.target_tokens)})

    monkeypatch.setattr(Transformer, "forward", everywhere)
    broken = failing(make_bundle(), "accumulated = large batch", "padded = unpadded")
    assert broken == {"accumulated = large batch", "padded = unpadded"}


def test_a_recorder_that_forgets_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttentionCall, "weights", lambda call: attention_weights(call.q, call.k, scale=call.scale))
    assert failing(make_bundle(), "recorded weights = output") == {"recorded weights = output"}


def test_a_save_that_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.bundle

    write = regard.bundle.write_tensors

    def rounded(path: Path, tensors: dict[str, Tensor]) -> None:
        write(path, {name: tensor.bfloat16().float() for name, tensor in tensors.items()})

    monkeypatch.setattr(regard.bundle, "write_tensors", rounded)
    assert failing(make_bundle(), "reloaded = saved") == {"reloaded = saved"}


def test_a_resume_that_forgets_the_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.training.state.load_optimiser", lambda *_: None)
    assert failing(make_bundle(), "resumed = uninterrupted") == {"resumed = uninterrupted"}


def test_noise_that_depends_on_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def none(*key: int) -> Iterator[None]:
        yield  # dropout takes torch's own generator, which nothing saves

    monkeypatch.setattr("regard.training.update.noise", none)
    assert failing(make_bundle(), "resumed = uninterrupted") == {"resumed = uninterrupted"}


def test_a_tokenizer_that_trims(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = TextTokenizer.decode
    monkeypatch.setattr(TextTokenizer, "decode", lambda self, ids: decode(self, ids).strip())
    assert failing(make_bundle(), "tokenizer round trip") == {"tokenizer round trip"}


def test_weights_that_are_not_numbers() -> None:
    bundle = make_bundle()
    with torch.no_grad():
        bundle.model.decoder[0].cross.out.weight[3, 5] = torch.nan  # type: ignore[union-attr,index]
    assert set(FORWARD) <= failing(bundle, *FORWARD)


# -- odd ---------------------------------------------------------------------------------------------------------------


def test_a_model_that_breaks_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Transformer, batch: PairBatch) -> Tensor:
        raise RuntimeError("no logits today")

    monkeypatch.setattr(Transformer, "logits", broken)
    (check,) = verify(make_bundle(), ["batched = single"])
    assert (check.passed, check.detail) == (False, "RuntimeError: no logits today")


def test_a_model_that_does_not_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TransformerDecoder, "start")
    checks = {check.name: check for check in verify(make_bundle(), [*FORWARD, "recorded weights = output"])}
    skipped = {name for name, check in checks.items() if check.passed is None}
    assert skipped == set(STEPS)
    assert checks["cached = uncached"].detail == "a transformer does not write step by step"
    assert all(check.passed for name, check in checks.items() if name not in skipped)


# -- every task --------------------------------------------------------------------------------------------------------

BLOCKS = {"layers": 2, "width": 12, "heads": 3, "feed_forward": 7, "dropout": 0.1}
LLAMA = BLOCKS | {"heads": 6}
RUNG = {"width": 12, "dropout": 0.1}


def make(task: str, kind: str, tokens: dict[str, Any] | None = None, **model: Any) -> Bundle:
    """A bundle of any task; all its weights are random, except that special tokens have no TF-IDF."""
    settings = TokensConfig(**{"size": 300, "min_count": 1, **(tokens or {})})
    tokenizer = train_tokenizer(TEXTS, settings, mask=kind == "bert")
    values: dict[str, Any] = {"task": task, "tokens": settings, "vocabulary": (tokenizer.size,)}
    labels = ("fish", "flesh", "fowl") if task == "classify" else ()
    config = BundleConfig.model_validate({**values, "labels": labels, "model": {"kind": kind, **model}})
    built: Any = build(task, config.model, config.vocabulary, labels=len(labels)).eval()
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=random) + (parameter.dim() == 1))
        if kind == "tfidf":
            built.idf[:4] = 0
    return Bundle(config, built, TokenizerPair(tokenizer, tokenizer), {})


PIXELS = {"rows": 7, "columns": 11, "width": 13}
KINDS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("generate", "gpt1", BLOCKS, {}),
    ("generate", "gpt2", BLOCKS | {"max_length": 11}, {"kind": "byte"}),
    ("generate", "gpt3", BLOCKS | {"band": 3}, {"kind": "space"}),
    ("generate", "llama", LLAMA | {"groups": 2}, {}),
    ("generate", "llama", LLAMA | {"experts": 3}, {}),
    ("generate", "lstm", {"width": 12, "hidden": 14, "layers": 2}, {"kind": "word"}),
    ("generate", "wavenet", {"width": 11, "channels": 7, "dilations": (1, 3), "labels_from": 250}, {"kind": "byte"}),
    ("generate", "pixelcnn", PIXELS | {"channels": 5, "layers": 3, "first": 5, "labels_from": 250}, {"kind": "byte"}),
    ("generate", "pixelrnn", PIXELS | {"hidden": 5, "layers": 2, "labels_from": 250}, {"kind": "byte"}),
    ("generate", "image-transformer", PIXELS | {"width": 12, "heads": 3, "layers": 2, "memory": 11}, {"kind": "byte"}),
    ("fill", "bert", BLOCKS, {"kind": "wordpiece"}),
    ("fill", "bert", BLOCKS | {"next_sentence": True, "max_length": 13}, {}),
    ("fill", "bert", BLOCKS | {"head": False}, {"kind": "wordpiece", "lowercase": True}),
    ("classify", "tfidf", {}, {"kind": "word"}),
    ("classify", "token-weights", RUNG, {}),
    ("classify", "plain-attention", RUNG, {}),
    ("classify", "additive", RUNG | {"hidden": 14}, {}),
    ("classify", "self-attention", RUNG | {"heads": 3}, {"kind": "character"}),
    ("classify", "bert", BLOCKS | {"pooler": True}, {"kind": "wordpiece"}),
    ("classify", "bert", BLOCKS | {"segments": 1}, {}),
    ("classify", "gpt1", BLOCKS | {"language_weight": 0.5}, {}),
    ("classify", "gpt2", BLOCKS, {}),
    ("classify", "gpt3", BLOCKS | {"band": 3}, {}),
    ("classify", "llama", LLAMA | {"experts": 3}, {}),
]


def test_no_kind_is_forgotten() -> None:
    tried = {(task, kind) for task, kind, _, _ in KINDS}
    seeing = {"classify-pictures", "caption", "answer"}  # in test_verify_pictures.py
    remembering = {"ask", "remember", "compute"}  # in test_verify_memory.py
    hearing = {"transcribe", "classify-sounds"}  # in test_conformer.py
    elsewhere = {"translate", "classify-graphs", "align"}  # the latter in test_graph_use.py and test_preferences.py
    here = KINDS_OF.keys() - seeing - remembering - hearing - elsewhere
    assert tried == {(task, kind) for task in here for kind in KINDS_OF[task]}
    assert TASKS.keys() == KINDS_OF.keys()


def reasons(task: str, kind: str, model: dict[str, Any]) -> dict[str, str]:
    """What does not apply, and why."""
    name = f"{'an' if kind in ('additive', 'lstm') else 'a'} {kind}{' classifier' if task == 'classify' else ''}"
    found = {}
    if task in ("fill", "classify"):
        found |= dict.fromkeys(STEPS, f"{name} does not write step by step")
        found |= {CAUSAL: f"{name} answers when it has read the whole text"}
    if kind == "lstm":
        found |= {"recorded weights = output": "an lstm has no attention"}
    if kind == "wavenet":
        found |= {"recorded weights = output": "a wavenet has no attention"}
    if kind in ("pixelcnn", "pixelrnn"):
        found |= {"recorded weights = output": f"a {kind} has no attention"}
    learning = ("accumulated = large batch", "resumed = uninterrupted")
    if "head" in model:
        found |= dict.fromkeys(learning, "a bert without a head gives vectors: there is no loss to learn from")
    if "experts" in model:
        why = "the term that keeps experts in use is of each micro-batch by itself, not of the whole batch"
        found |= {learning[0]: why}
    return found


@pytest.mark.parametrize(("task", "kind", "model", "tokens"), KINDS, ids=str)
def test_every_kind_keeps_every_invariant(task: str, kind: str, model: dict[str, Any], tokens: dict[str, Any]) -> None:
    checks = verify(make(task, kind, tokens, **model))
    assert [check.name for check in checks] == list(CHECKS)
    assert [check for check in checks if check.passed is False] == []
    assert {check.name: check.detail for check in checks if check.passed is None} == reasons(task, kind, model)


def test_experts_without_a_balance_term_accumulate() -> None:
    (check,) = verify(make("generate", "llama", **LLAMA, experts=3, balance=0.0), ["accumulated = large batch"])
    assert check.passed


def test_imported_tokens_may_have_their_special_ids_anywhere() -> None:
    """As GPT-2's: the only special token comes last, and the table of embeddings has rows that no token has."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    theirs = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    theirs.add_special_tokens(["<|endoftext|>"])
    tokenizer = TextTokenizer(theirs)
    ours = make("generate", "gpt2", **BLOCKS).config
    config = ours.model_copy(update={"tokens": TokensConfig(kind="imported"), "vocabulary": (tokenizer.size + 3,)})
    model = build("generate", config.model, config.vocabulary).eval()
    bundle = Bundle(config, model, TokenizerPair(tokenizer, tokenizer), {})
    assert [check for check in verify(bundle) if check.passed is not True] == []
    assert TASKS["generate"].make_subject.of(bundle).ordinary().tolist() == [*range(256), 257, 258, 259]


@pytest.mark.parametrize("pairs", [False, True])
def test_rows_of_texts_with_gaps_keep_their_own(pairs: bool) -> None:
    subject = TASKS["fill"].make_subject.of(make("fill", "bert", **BLOCKS, next_sentence=pairs))
    whole, some = subject.take(range(5)), subject.take([3, 1])
    assert sorted(whole.lengths.tolist()) == [length + (3 if pairs else 2) for length in (2, 3, 5, 7, 37)]
    wanted, found = iter(whole.wanted.tolist()), iter(some.wanted.tolist())
    of_row = [[next(wanted) for place in row if place] for row in whole.places]
    for number, row in enumerate((3, 1)):
        length = int(whole.lengths[row])
        assert int(some.lengths[number]) == length
        assert some.ids[number, :length].tolist() == whole.ids[row, :length].tolist()
        assert [next(found) for place in some.places[number] if place] == of_row[row] != []
        if pairs:
            assert some.segments[number].sum() == whole.segments[row].sum() > 0
            assert some.follows[number] == whole.follows[row]
    assert list(found) == [] and some.ids.size(1) == max(some.lengths)


# -- sabotaged, in every task ------------------------------------------------------------------------------------------


def test_a_cache_that_forgets_when_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    def grow(self: StepCache, needed: int) -> None:
        rows, groups, _, width = self.keys.shape
        self.keys, self.values = (self.keys.new_zeros(rows, groups, 2 * needed, width) for _ in range(2))

    monkeypatch.setattr(StepCache, "_grow", grow)
    assert "cached = uncached" in failing(make("generate", "gpt2", **BLOCKS), *FORWARD)


def test_a_prompt_that_counts_as_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    start = GPT.start

    def one(self: GPT, source: object, prefix: Tensor) -> tuple[Tensor, GPTState]:
        logits, state = start(self, source, prefix)
        return logits, replace(state, read=1)

    monkeypatch.setattr(GPT, "start", one)
    broken = failing(make("generate", "gpt2", **BLOCKS), *FORWARD, CAUSAL)
    assert broken == {"prompt at once = token by token", "reordered = recomputed"}


def test_a_text_that_sees_its_future(monkeypatch: pytest.MonkeyPatch) -> None:
    read = LanguageModel.hidden

    def all_of_it(self: LanguageModel, batch: TextBatch) -> Tensor:
        hidden = read(self, batch)
        return hidden + 1e-3 * hidden[:, -1:]

    monkeypatch.setattr(LanguageModel, "hidden", all_of_it)
    for bundle in (make("generate", "llama", **LLAMA), make("generate", "lstm", width=12, hidden=12)):
        assert {"cached = uncached", "padded = unpadded", CAUSAL} <= failing(bundle, *FORWARD, CAUSAL)


def test_steps_that_look_beyond_the_band(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = StepCache.seen
    monkeypatch.setattr(StepCache, "seen", lambda self, last=0: seen(self))
    assert "cached = uncached" in failing(make("generate", "gpt3", **BLOCKS, band=3), *FORWARD)


def test_hypotheses_that_all_go_on_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    reorder = GPT.reorder
    monkeypatch.setattr(GPT, "reorder", lambda self, state, parents: reorder(self, state, torch.zeros_like(parents)))
    assert failing(make("generate", "gpt2", **BLOCKS), *FORWARD) == {"reordered = recomputed"}


def test_half_a_state_that_is_not_reordered(monkeypatch: pytest.MonkeyPatch) -> None:
    def select(self: LSTMState, rows: Tensor) -> LSTMState:
        width = len(rows) // len(set(rows.tolist())) if len(rows) else 1
        layers = [
            tuple(part[rows if number == 0 else rows // width * width] for number, part in enumerate(layer))
            for layer in self.layers
        ]
        return replace(self, layers=layers)

    monkeypatch.setattr(LSTMState, "select", select)
    broken = failing(make("generate", "lstm", width=12, hidden=12, layers=2), *FORWARD, CAUSAL)
    assert broken == {"reordered = recomputed"}


def test_a_text_whose_padding_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(hidden: Tensor, batch: TextBatch) -> tuple[Tensor, Tensor]:
        return hidden.flatten(0, 1), batch.ids[:, 1:].flatten()

    monkeypatch.setattr(LanguageModel, "counted", staticmethod(everything))
    broken = failing(make("generate", "gpt1", **BLOCKS), *FORWARD, "accumulated = large batch")
    assert broken == {"padded = unpadded", "accumulated = large batch"}


@pytest.mark.parametrize(
    ("task", "kind", "model"),
    [("fill", "bert", BLOCKS), ("classify", "bert", BLOCKS), ("classify", "token-weights", RUNG)],
    ids=str,
)
def test_padding_that_is_looked_at(
    task: str, kind: str, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything(self: Lengths, queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
        return torch.ones(len(self.lengths), 1, 1, keys, dtype=torch.bool, device=device)

    monkeypatch.setattr(Lengths, "dense", everything)
    assert failing(make(task, kind, **model), *FORWARD) == {"batched = single", "padded = unpadded"}


def test_one_text_whose_scores_are_not_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last and shortest: a difference that is not a number must not hide behind those that are."""
    logits = Classifier.logits

    def some(self: Classifier, batch: LabelBatch) -> Tensor:
        return logits(self, batch).masked_fill((batch.lengths == 4)[:, None], torch.nan)

    monkeypatch.setattr(Classifier, "logits", some)
    assert failing(make("classify", "token-weights", **RUNG), *FORWARD) == {"batched = single", "padded = unpadded"}


def test_padding_that_weighs_something() -> None:
    bundle = make("classify", "tfidf")
    with torch.no_grad():
        bundle.model.idf[0] = 0.5  # type: ignore[operator,index]
    assert failing(bundle, *FORWARD) == {"batched = single", "padded = unpadded"}


def test_a_text_that_is_judged_by_its_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.models.classifier.last_of", lambda x, lengths: x[:, -1])
    assert failing(make("classify", "gpt2", **BLOCKS), *FORWARD) == {"batched = single", "padded = unpadded"}


def test_a_second_loss_that_is_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Bert.forward

    def mean(self: Bert, batch: MaskedBatch) -> Loss:
        parts = forward(self, batch).parts
        part = parts["next"]
        return Loss(parts | {"next": Part(part.sum / part.count, part.count, part.weight)})

    monkeypatch.setattr(Bert, "forward", mean)
    broken = failing(make("fill", "bert", **BLOCKS, next_sentence=True), *FORWARD, "accumulated = large batch")
    assert broken == {"accumulated = large batch"}


def test_weights_that_are_told_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.attention.record import report

    def doubled(*seen: Any, reported: Tensor, **how: Any) -> None:
        report(*seen, reported=2 * reported, **how)

    monkeypatch.setattr("regard.models.text_classifiers.report", doubled)
    assert failing(make("classify", "tfidf"), "recorded weights = output") == {"recorded weights = output"}


def test_a_table_that_is_not_saved() -> None:
    bundle = make("generate", "llama", **LLAMA)
    next(bundle.model.buffers()).mul_(1.1)  # of cosines, which a load computes anew
    (check,) = verify(bundle, ["reloaded = saved"])
    assert (check.passed, check.detail) == (False, "the weights are equal, but the logits are not")


@pytest.mark.parametrize(
    ("task", "kind", "model", "where"),
    [
        ("generate", "gpt2", BLOCKS, "regard.data.stream.generator"),
        ("fill", "bert", BLOCKS, "regard.data.masking.generator"),
        ("classify", "token-weights", RUNG, "regard.data.batches.generator"),
    ],
    ids=str,
)
def test_batches_that_depend_on_the_past(
    task: str, kind: str, model: dict[str, Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = iter(range(10**6))
    monkeypatch.setattr(where, lambda *key: generator(*key, next(past)))
    assert failing(make(task, kind, **model), "resumed = uninterrupted") == {"resumed = uninterrupted"}
