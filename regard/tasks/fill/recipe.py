"""Train a model that fills gaps: masked language modelling on any text (Devlin et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from regard.bundle import Bundle, BundleConfig
from regard.data.masking import MaskedBatches, masked_batches
from regard.errors import UsageError
from regard.inspect.probes import first_lines, prober
from regard.models.config import BertConfig
from regard.models.table import build
from regard.tasks.config import FillConfig, RunConfig
from regard.tasks.fill.predictor import Filler
from regard.tasks.generate.recipe import load_texts
from regard.tasks.recipe import Prepared, fingerprint, made_by, make_tokenizer, note_run, saver, take_weights
from regard.tokens import TextTokenizer, TokenizerPair
from regard.training.events import Tell, Working, silent
from regard.training.loop import Job
from regard.training.validation import Validation


def prepare_fill(
    config: RunConfig, folder: Path, *, data_root: Path | None, resume: bool, device: str = "cpu", tell: Tell = silent
) -> Prepared:
    """Read the text, make or reload the tokenizer, build the model. Nothing is trained yet."""
    assert isinstance(config, FillConfig) and isinstance(config.model, BertConfig)
    if config.data.context > config.model.max_length:
        raise UsageError(
            f"data.context {config.data.context} is more than model.max_length {config.model.max_length}; make them equal"
        )
    train, valid, notes = load_texts(config.data, data_root)
    if not resume:
        note_run(folder, config, data_root, device)
    tokenizer = make_tokenizer(config, folder, train, resume=resume, tell=tell, mask=True)
    torch.manual_seed(config.train.seed)
    model = build("fill", config.model, (tokenizer.size,), smoothing=config.train.smoothing)
    take_weights(model, config, resume=resume)
    bundle = BundleConfig(task="fill", tokens=config.tokens, vocabulary=(tokenizer.size,), model=config.model)
    pair = TokenizerPair(tokenizer, tokenizer)
    tell(Working("encoding the texts"))
    batches = _batches(config, tokenizer, train, config.train.seed)
    held = _batches(config, tokenizer, valid, seed=0)
    job = Job(
        folder=folder,
        config=config.train,
        model=model,
        width=config.model.width,
        batches=batches,
        validate=_validation(held),
        save=saver(folder, bundle, pair, made_by(config, device)),
        fingerprint={
            "the training data": fingerprint(batches.documents),
            "the validation data": fingerprint(held.documents),
            "the model": config.model,
        },
        device=torch.device(device),
        probe=prober(Filler(Bundle(bundle, model, pair, {})), first_lines(valid), config.probes, folder),
    )
    sizes = [sum(len(ids) for ids in each.documents) for each in (batches, held)]
    counts = f"{sizes[0]:,} training and {sizes[1]:,} validation tokens, a vocabulary of {tokenizer.size:,}"
    return Prepared(job, (*notes, counts))


def _batches(config: FillConfig, tokenizer: TextTokenizer, texts: list[str], seed: int) -> MaskedBatches:
    assert isinstance(config.model, BertConfig)
    return masked_batches(
        tokenizer,
        texts,
        length=config.data.context,
        batch_tokens=config.train.batch_tokens,
        seed=seed,
        rate=config.masked,
        pairs=config.model.next_sentence,
    )


def _validation(batches: MaskedBatches) -> Callable[[nn.Module], Validation]:
    """Loss and perplexity of the hidden tokens of unseen text, the same gaps each time."""

    def validate(model: nn.Module) -> Validation:
        total = count = 0.0
        device = next(model.parameters()).device
        for index in range(batches.count(0)):
            batch = batches.get(0, index).to(device)
            found = model(batch).parts
            total, count = total + float(found["nll"].sum), count + found["nll"].count
        metrics = {"loss": total / count, "perplexity": math.exp(min(50.0, total / count))}
        return Validation(metrics)

    return validate
