"""Through the disk and back: a bundle, a training run that breaks off, and text that becomes tokens."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from regard.bundle import load_bundle, save_bundle
from regard.tasks.subject import ROWS, Model, NotApplicable, Subject
from regard.tensors import weights_of
from regard.tokens import TextTokenizer
from regard.training.config import TrainConfig
from regard.training.events import Progress
from regard.training.history import LOG
from regard.training.job import Job
from regard.training.show import Show
from regard.training.timed import train
from regard.training.validation import Validation

ODD_TEXTS = (
    "A man rides a bike.",
    "  spaces before,  between and behind  ",
    "tab\tline\nend\r\n\x00\x1f\x7f\x85\u2028",
    "Ünï çødé, e\u0301 and \u00e9, ﬁ, İ, ß",
    "日本語のテキスト ไทย עברית العربية हिन्दी",
    "👩‍👩‍👧‍👦🇫🇮 𝔘𝔫𝔦 \U0010ffff",
    "<pad> <s> </s> <unk> are text here",
    "",
)


def reloaded(subject: Subject) -> tuple[bool, str]:
    """Saved and loaded again, every tensor and every logit has the same bits, and every text the same ids."""
    bundle = subject.bundle
    with TemporaryDirectory() as place:
        again = load_bundle(save_bundle(Path(place) / "bundle", bundle), next(bundle.model.parameters()).device)
    before, after = weights_of(bundle.model), weights_of(again.model)
    changed = [name for name in before if name not in after or not torch.equal(before[name], after[name])]
    if changed or before.keys() != after.keys():
        return False, f"{len(changed)} of {len(before)} tensors changed, the first is {changed[:1]}"
    batch = subject.batch(bundle.model)
    models: list[Model] = [copy.deepcopy(bundle.model).eval(), again.model]
    with torch.no_grad():
        if not torch.equal(*(subject.outputs(model, batch) for model in models)):
            return False, "the weights are equal, but the logits are not"
    others = type(subject)(again, {}).tokenizers
    for name, tokenizer in subject.tokenizers.items():
        if tokenizer.encode_all(ODD_TEXTS) != others[name].encode_all(ODD_TEXTS):
            return False, f"the {name} gives other ids"
    return True, f"{len(before)} tensors, logits and token ids are bit-equal"


def resumed(subject: Subject) -> tuple[bool, str]:
    """Trained a few steps, a run that broke off between two checkpoints ends with the bits of one that did not."""
    subject.needs_loss()
    with TemporaryDirectory() as place:
        whole, broken = Path(place) / "whole", Path(place) / "broken"
        _train(subject, whole)
        try:
            _train(subject, broken, stop_at=3)
        except _Stopped:
            _train(subject, broken, resume=True)
        files = sorted(file.relative_to(whole) for file in whole.glob("checkpoints/*/*.safetensors"))
        files += [Path(LOG)]
        other = [str(file) for file in files if (whole / file).read_bytes() != (broken / file).read_bytes()]
    if other:
        return False, f"stopped at step 3 of 5 and resumed, these differ: {', '.join(other)}"
    return (
        True,
        f"stopped at step 3 of 5 and resumed: {len(files)} files (weights, optimiser, average, log) are bit-equal",
    )


class _Stopped(Exception):
    """A run broke off, on purpose."""


@dataclass
class _StopAt(Show):
    step: int

    def progress(self, event: Progress) -> None:
        if event.step == self.step:
            raise _Stopped


def _train(subject: Subject, folder: Path, *, stop_at: int = 0, resume: bool = False) -> None:
    """Five updates of the bundle's own model through the real loop, on a CPU, where equal bits can be asked for."""
    config = TrainConfig(
        steps=5, accumulate=2, lr=1e-4, schedule="constant", warmup=0, ema=0.9, average=2,
        validate_every=2, patience=0, log_every=1, precision="float32",
    )  # fmt: skip
    model = copy.deepcopy(subject.bundle.model).cpu().float()
    held = subject.take(ROWS)

    def validate(model: nn.Module) -> Validation:
        part = model(held).parts["nll"]
        return Validation({"loss": float(part.sum) / part.count})

    job = Job(
        folder=folder,
        config=config,
        model=model,
        width=subject.bundle.config.model.width,
        batches=subject.training(config.seed),
        validate=validate,
        save=lambda model, name, metrics: None,
    )
    if train(job, _StopAt(stop_at), resume).reason == "interrupted":
        raise KeyboardInterrupt


def round_trip(subject: Subject) -> tuple[bool, str]:
    """Text -> ids -> text is the same text, or, where a tokenizer loses something, loses nothing more the second time."""
    config = subject.bundle.config.tokens
    if config is None:
        raise NotApplicable(f"{subject.name} neither reads nor writes text")
    exact = config.kind in ("bpe", "byte") and config.normalise == "none" and not config.lowercase
    for name, tokenizer in subject.tokenizers.items():
        for text in ODD_TEXTS:
            first = text if exact else _there_and_back(tokenizer, text)
            again = _there_and_back(tokenizer, first)
            if again != first:
                return False, f"the {name} turns {first!r} into {again!r}"
    if exact:
        return True, f"{len(ODD_TEXTS)} odd texts come back exactly"
    return True, f"{config.kind} tokens may lose something of a text once, but nothing more the second time"


def _there_and_back(tokenizer: TextTokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(text))
