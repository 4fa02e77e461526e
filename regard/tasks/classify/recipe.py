"""Train a classifier: labelled texts, from nothing or on top of a pre-trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.data.batches import LabelBatches, encode_labelled, with_trees
from regard.data.labelled import Labelled, load_labelled
from regard.evaluate.classification import f1_error, score_labels
from regard.inspect.probes import Text, prober
from regard.models.config import reads_trees
from regard.models.table import build
from regard.tasks.classify.predictor import TextClassifier
from regard.tasks.config import ClassifyConfig, RunConfig
from regard.tasks.recipe import (
    Prepared,
    class_weights,
    fingerprint,
    label_metrics,
    made_by,
    make_tokenizer,
    note_run,
    saver,
    take_weights,
    uneven,
    uneven_notes,
)
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Tell, Working, silent
from regard.training.loop import Job
from regard.training.validation import Validation, share_error

SHOWN = 2  # validation texts shown to the person


def prepare_classify(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the texts, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, ClassifyConfig)
    data = config.data if reads_trees(config.model) else config.data.model_copy(update={"heads": ""})
    sets = load_labelled(data, data_root)
    if not resume:
        note_run(folder, config, data_root, device)
    texts = [text for each in sets.train for text in (each.text, each.second) if text is not None]
    tokenizer = make_tokenizer(config, folder, texts, resume=resume, tell=tell, mask=config.model.kind == "bert")
    longest = min(config.data.max_length, config.model.longest or config.data.max_length)
    encode = partial(
        _encode, labels=sets.labels, tokenizer=tokenizer, longest=longest, budget=config.train.batch_tokens
    )
    tell(Working("encoding the texts"))
    train, valid = encode(sets.train, seed=config.train.seed), encode(sets.valid, seed=0)
    torch.manual_seed(config.train.seed)
    smoothing = config.train.smoothing
    model = build("classify", config.model, (tokenizer.size,), labels=len(sets.labels), smoothing=smoothing)
    take_weights(model, config, resume=resume)
    counts = np.bincount(train.labels, minlength=len(sets.labels)).tolist()
    model.class_weights = class_weights(config.train.class_weights, sets.labels, counts)  # type: ignore[assignment]
    if hasattr(model, "fit"):  # what is counted, not learned
        model.fit(train.texts)  # type: ignore[operator]
    bundle = BundleConfig(
        task="classify",
        labels=tuple(sets.labels),
        pairs=_are_pairs(sets.train),
        longest=longest,
        tokens=config.tokens,
        vocabulary=(tokenizer.size,),
        model=config.model,
    )
    pair = TokenizerPair(tokenizer, tokenizer)
    trees = [np.array(each.heads, dtype=np.int32) for each in sets.train if each.heads is not None]
    learned = fingerprint(train.texts, [train.labels], *([trees] if trees else []))
    same = {"the training data": learned, "the labels": list(sets.labels)}
    same["the validation data"] = fingerprint(valid.texts, [valid.labels])
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=train,
        validate=_validation(valid, sets.valid, sets.labels, uneven(counts)),
        save=saver(folder, bundle, pair, made_by(config, device)),
        fingerprint={**same, "the model": config.model},
        device=torch.device(device),
        probe=prober(TextClassifier(Bundle(bundle, model, pair, {})), _to_probe(sets.valid), config.probes, folder),
        unit="texts",
    )
    told = (*sets.notes, *uneven_notes(sets.labels, counts, "texts", config.train.class_weights))
    sizes = f"{len(sets.train):,} training and {len(sets.valid):,} validation texts, {len(sets.labels)} labels"
    return Prepared(job, (*told, *_cut_note(sets.train, tokenizer, longest), sizes))


def _are_pairs(texts: Sequence[Labelled]) -> bool | None:
    """Whether every text has a second one; None where only some do."""
    having = {each.second is not None for each in texts}
    return having.pop() if len(having) == 1 else None


def _to_probe(texts: Sequence[Labelled]) -> list[Text]:
    """What a model can read without more than the text."""
    return [(each.text, each.second) for each in texts if each.heads is None]


def _encode(
    texts: Sequence[Labelled], *, labels: Sequence[str], tokenizer: TextTokenizer, longest: int, budget: int, seed: int
) -> LabelBatches:
    """Batches of the texts, with their trees if they have them."""
    batches = encode_labelled(texts, labels, tokenizer, longest, budget, seed)
    return with_trees(batches, [each.text for each in texts], [each.heads for each in texts], tokenizer)


def _cut_note(texts: Sequence[Labelled], tokenizer: TextTokenizer, longest: int) -> list[str]:
    lengths = [len(ids) for ids in tokenizer.encode_all([each.text for each in texts])]
    cut = sum(length > longest - 2 for length in lengths)
    return [f"{cut:,} of {len(texts):,} training texts are cut to {longest} tokens (data.max_length)"] if cut else []


def _validation(
    batches: LabelBatches, texts: Sequence[Labelled], labels: Sequence[str], rare: bool
) -> Callable[[nn.Module], Validation]:
    """Loss, accuracy and F1 on unseen texts; where some labels are rare, also what always answering one gives."""

    def validate(model: nn.Module) -> Validation:
        device = next(model.parameters()).device
        predicted, total = np.zeros(len(texts), dtype=np.int64), 0.0
        for rows in batches.plan(0):
            batch = batches.take(rows).to(device)
            logits = model.logits(batch)  # type: ignore[operator]
            predicted[rows] = logits.argmax(dim=-1).cpu().numpy()
            total += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        found = score_labels(predicted.tolist(), batches.labels.tolist(), labels)
        metrics = {"loss": total / len(texts), **label_metrics(found, rare)}
        shown = [(each.text[:160], labels[predicted[row]], each.label) for row, each in enumerate(texts[:SHOWN])]
        errors = {"accuracy": share_error(found.accuracy, len(texts)), "f1": f1_error(found.confusion)}
        return Validation(metrics, shown, errors)

    return validate
