"""Train a classifier: labelled texts, from nothing or on top of a pre-trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batch import LabelBatch
from regard.data.batches import LabelBatches
from regard.data.kept.cache import joint_key, shared_out
from regard.data.kept.encoded_labelled import (
    EncodedLabelled,
    encode_labelled_sets,
    encode_labelled_texts,
    trees_of,
)
from regard.data.kept.tokenizers import sample_note, sampled
from regard.data.labelled import Labelled, LabelledSets, further_labelled, in_order, load_labelled
from regard.data.mixed import mixture
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
    corpora_note,
    every_batch,
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
from regard.training.state import Fingerprint
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation texts shown to the person


def prepare_classify(config: RunConfig, setup: Setup) -> PreparedRun:
    """Read the texts, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyConfig)
    data = config.data if reads_trees(config.model) else config.data.model_copy(update={"heads": ""})
    sets = load_labelled(data, setup.data_root, setup.keep(), setup.progress)
    corpora = [sets, *further_labelled(data, setup.data_root, sets, setup.keep_corpus, setup.progress)]
    labels = tuple(in_order(label for each in corpora for label in each.labels))
    config = _chosen(config, setup, corpora, labels)
    setup.note(config)
    key = joint_key([each.key for each in corpora])
    tokenizer = setup.tokenizer(config, partial(_sample, corpora), key, mask=config.model.kind == "bert")
    longest = min(config.data.max_length, config.model.longest or config.data.max_length)
    learned = [
        encode_labelled_sets(each, labels, tokenizer, longest, setup.keep_corpus(number), setup.progress)
        for number, each in enumerate(corpora)
    ]
    sources = [
        _batches(each, texts.train, tokenizer, config.train.batch_tokens, config.train.seed)
        for each, texts in zip(learned, corpora, strict=True)
    ]
    train = mixture(sources, config.data.weights, config.data.temperature, config.train.seed)
    held = encode_labelled_texts(sets.valid, labels, tokenizer, longest)
    valid = _batches(held, sets.valid, tokenizer, config.train.batch_tokens, seed=0)
    model = setup.build(config, (tokenizer.size,), labels=len(labels))
    counts = np.bincount(np.concatenate([each.labels for each in learned]), minlength=len(labels)).tolist()
    model.class_weights = class_weights(config.train.class_weights, labels, counts)  # type: ignore[assignment]
    if isinstance(model, Countable):
        model.fit(learned[0].texts if len(learned) == 1 else [row for each in learned for row in each.texts])
    about = BundleConfig(
        task="classify",
        labels=labels,
        pairs=sets.pairs,
        longest=longest,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
    )
    bundle = Bundle(about, model, TokenizerPair(tokenizer, tokenizer), {})
    parts = [part for each, texts in zip(sources, corpora, strict=True) for part in _parts(each, texts.train)]
    same: Fingerprint = {"the training data": fingerprint(*parts), "the labels": list(labels)}
    same["the validation data"] = fingerprint(valid.texts, [valid.labels])
    job = setup.job(
        config,
        bundle,
        train,
        _validation(valid, sets.valid, labels, uneven(counts)),
        same,
        held_out=lambda: every_batch(valid),
        probe=prober(TextClassifier(bundle), _to_probe(sets.valid), config.probes, setup.folder),
        unit="texts",
    )
    told = (*_notes(config, corpora), *uneven_notes(labels, counts, "texts", config.train.class_weights))
    told += corpora_note(config.data, train, [f"{len(each.train):,} texts" for each in corpora])
    total, cut = sum(len(each.train) for each in corpora), sum(each.cut for each in learned)
    if cut:
        told += (f"{cut:,} of {total:,} training texts are cut to {longest} tokens (data.max_length)",)
    sizes = f"{total:,} training and {len(sets.valid):,} validation texts, {len(labels)} labels"
    return PreparedRun(job, (*told, sizes))


def _notes(config: ClassifyConfig, corpora: Sequence[LabelledSets]) -> list[str]:
    notes, characters = [note for each in corpora for note in each.notes], sum(each.characters for each in corpora)
    return [*notes, *(sample_note(characters, config.tokens.sample) if config.start is None else ())]


def _parts(batches: LabelBatches, texts: Sequence[Labelled]) -> Iterator[Sequence[np.ndarray]]:
    """The parts of a corpus that a run must find unchanged: ids, labels, and trees."""
    yield batches.texts
    yield [batches.labels]
    if batches.parents is not None:
        yield [np.array(each.parents, dtype=np.int32) for each in texts]


def _chosen(
    config: ClassifyConfig, setup: Setup, corpora: Sequence[LabelledSets], labels: Sequence[str]
) -> ClassifyConfig:
    characters, examples = sum(each.characters for each in corpora), sum(len(each.train) for each in corpora)
    facts = {"characters": characters, "labels": len(labels), "length": characters / max(1, examples)}
    found = setup.choose(config, examples=examples, **facts)
    assert isinstance(found, ClassifyConfig)
    return found


def _sample(corpora: Sequence[LabelledSets], most: int) -> Iterator[str]:
    """Training texts with about so many characters, for a tokenizer; first and second texts by turns."""
    mosts = shared_out(most, [each.characters for each in corpora])
    some = (sampled(each.train, each.characters, share) for each, share in zip(corpora, mosts, strict=True))
    return (text for rows in some for each in rows for text in (each.text, each.second) if text is not None)


def _to_probe(texts: Sequence[Labelled]) -> list[Text]:
    """The texts, and their second texts, that a model can read without a tree."""
    return [(each.text, each.second) for each in texts if each.parents is None]


def _batches(
    encoded: EncodedLabelled, texts: Sequence[Labelled], tokenizer: TextTokenizer, budget: int, seed: int
) -> LabelBatches:
    """Batches of the texts, with their trees if they have them."""
    trees = trees_of(texts, encoded.texts.lengths, tokenizer)
    return encoded.batches(tokenizer.specials.pad, budget, seed, trees)


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
