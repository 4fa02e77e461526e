"""Train a classifier: labelled texts, from nothing or on top of a pre-trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import (
    LabelBatch,
)
from regard.data.batches import LabelBatches, encode_labelled, with_trees
from regard.data.labelled import Labelled, LabelledSets, load_labelled
from regard.evaluate.classification import f1_error, score_labels
from regard.inspect.probes import Text, prober
from regard.models.config import BertConfig, reads_trees
from regard.models.protocols import Countable
from regard.tasks.classify.config import ClassifyConfig
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.config import RunConfig
from regard.tasks.recipe import (
    PreparedRun,
    Setup,
    class_weights,
    fingerprint,
    label_metrics,
    predicted_labels,
    uneven,
    uneven_notes,
)
from regard.tasks.subject import (
    ROWS,
    TEXT_LENGTHS,
    Subject,
    real_behind,
    zeros_behind,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Working
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation texts shown to the person


def prepare_classify(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the texts, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyConfig)
    data = config.data if reads_trees(config.model) else config.data.model_copy(update={"heads": ""})
    sets = load_labelled(data, setup.data_root)
    config = _chosen(config, setup, sets)
    setup.note(config)
    texts = [text for each in sets.train for text in (each.text, each.second) if text is not None]
    tokenizer = setup.tokenizer(config, texts, mask=config.model.kind == "bert")
    longest = min(config.data.max_length, config.model.longest or config.data.max_length)
    encode = partial(
        _encode, labels=sets.labels, tokenizer=tokenizer, longest=longest, budget=config.train.batch_tokens
    )
    setup.emit(Working("encoding the texts"))
    train, valid = encode(sets.train, seed=config.train.seed), encode(sets.valid, seed=0)
    model = setup.build(config, (tokenizer.size,), labels=len(sets.labels))
    counts = np.bincount(train.labels, minlength=len(sets.labels)).tolist()
    model.class_weights = class_weights(config.train.class_weights, sets.labels, counts)  # type: ignore[assignment]
    if isinstance(model, Countable):
        model.fit(train.texts)
    about = BundleConfig(
        task="classify",
        labels=tuple(sets.labels),
        pairs=_are_pairs(sets.train),
        longest=longest,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
    )
    bundle = Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {})
    trees = [np.array(each.parents, dtype=np.int32) for each in sets.train if each.parents is not None]
    learned = fingerprint(train.texts, [train.labels], *([trees] if trees else []))
    same: Fingerprint = {"the training data": learned, "the labels": list(sets.labels)}
    same["the validation data"] = fingerprint(valid.texts, [valid.labels])
    job = setup.job(
        config,
        bundle,
        train,
        _validation(valid, sets.valid, sets.labels, uneven(counts)),
        same,
        probe=prober(TextClassifier(bundle), _to_probe(sets.valid), config.probes, setup.folder),
        unit="texts",
    )
    told = (*sets.notes, *uneven_notes(sets.labels, counts, "texts", config.train.class_weights))
    sizes = f"{len(sets.train):,} training and {len(sets.valid):,} validation texts, {len(sets.labels)} labels"
    return PreparedRun(job, (*told, *_cut_note(sets.train, tokenizer, longest), sizes))


def _chosen(config: ClassifyConfig, setup: Setup, sets: LabelledSets) -> ClassifyConfig:
    characters = sum(len(each.text) + len(each.second or "") for each in sets.train)
    facts = {"characters": characters, "labels": len(sets.labels), "length": characters / max(1, len(sets.train))}
    found = setup.choose(config, examples=len(sets.train), **facts)
    assert isinstance(found, ClassifyConfig)
    return found


def _are_pairs(texts: Sequence[Labelled]) -> bool | None:
    """Whether every text has a second one; None where only some do."""
    having = {each.second is not None for each in texts}
    return having.pop() if len(having) == 1 else None


def _to_probe(texts: Sequence[Labelled]) -> list[Text]:
    """The texts, and their second texts, that a model can read without a tree."""
    return [(each.text, each.second) for each in texts if each.parents is None]


def _encode(
    texts: Sequence[Labelled], *, labels: Sequence[str], tokenizer: TextTokenizer, longest: int, budget: int, seed: int
) -> LabelBatches:
    """Batches of the texts, with their trees if they have them."""
    batches = encode_labelled(texts, labels, tokenizer, longest, budget, seed)
    return with_trees(batches, [each.text for each in texts], [each.parents for each in texts], tokenizer)


def _cut_note(texts: Sequence[Labelled], tokenizer: TextTokenizer, longest: int) -> list[str]:
    lengths = [len(ids) for ids in tokenizer.encode_all([each.text for each in texts])]
    cut = sum(length > longest - 2 for length in lengths)
    return [f"{cut:,} of {len(texts):,} training texts are cut to {longest} tokens (data.max_length)"] if cut else []


def _validation(
    batches: LabelBatches, texts: Sequence[Labelled], labels: Sequence[str], rare: bool
) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on unseen texts; where some labels are rare, also what always answering one gives."""

    def validate(model: nn.Module) -> Validation:
        predicted, loss = predicted_labels(model, batches, len(texts))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), labels)
        metrics = {"loss": loss, **label_metrics(found, rare)}
        shown = [(each.text[:160], labels[predicted[row]], each.label) for row, each in enumerate(texts[:SHOWN])]
        errors = {"accuracy": share_error(found.accuracy, len(texts)), "f1": f1_error(found.confusion)}
        return Validation(metrics, shown, errors)

    return validate


class ClassifySubject(Subject):
    """Texts with labels; for models that know which text of a pair a token belongs to, pairs."""

    @cached_property
    def texts(self) -> LabelBatches:
        return self.training(seed=1)

    def take(self, rows: Sequence[int]) -> LabelBatch:
        return self.texts.take(rows)

    def lengthened(self, batch: LabelBatch) -> LabelBatch:
        ids, heads = real_behind(batch.ids), batch.parents
        if heads is not None:
            behind = torch.arange(batch.ids.size(1), ids.size(1)).expand(len(ids), -1)  # each a root
            heads = torch.cat([heads, behind], dim=1)
        return replace(batch, ids=ids, segments=zeros_behind(batch.segments), parents=heads)

    def training(self, seed: int) -> LabelBatches:
        special = self.bundle.tokenizer.specials
        texts = [np.array([special.begin, *text, special.end]) for text in self.draw(TEXT_LENGTHS, special=2)]
        labels = np.random.default_rng(3).integers(0, len(self.bundle.config.labels), len(ROWS))
        config = self.bundle.config.model
        paired = isinstance(config, BertConfig) and config.segments > 1
        segments = [(np.arange(len(text)) > len(text) // 2).astype(np.int64) for text in texts]
        trees = isinstance(config, BertConfig) and config.positions == "tree"
        heads = [np.arange(len(text)) // 2 for text in texts] if trees else None  # each token has two below it
        return LabelBatches(texts, labels, special.pad, 40, seed, segments if paired else None, heads)

    def real(self, outputs: Tensor, batch: LabelBatch) -> list[Tensor]:
        """The scores of each text: (labels,)."""
        return list(outputs)

    @property
    def name(self) -> str:
        return f"{super().name} classifier"
