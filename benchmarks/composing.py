"""Music by rule, an LSTM beside Transformers with relative attention at equal time; and WaveNet on spoken digits or tones.

    python benchmarks/composing.py music --out docs/results/composing.json [--images docs/images/composing]
    python benchmarks/composing.py sound --out docs/results/composing.json [--images docs/images/composing]
    python benchmarks/composing.py table --out docs/results/composing.json

Every run is what `regard train generate --data DATA --budget TIME` does, but for its clock: that is the processor's own time,
so that other work on the machine takes none of it. Music: 64 pieces are written from nothing and held against the rule of a
canon. Sound: digits of one speaker of the Free Spoken Digit Dataset (REGARD_DATA/fsdd/fsdd.npz; recordings 0 to 4 of each digit
are the test set, as its authors have it), or tones that the package makes; nats a sample with the right label and a wrong one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.builtin.tones import tone
from regard.data.sound.sets import SEEDS
from regard.data.sound.waves import Sound, as_float, write_wav
from regard.data.stream import TokenStream, evaluation_batches
from regard.files import write_json
from regard.look.spectrograms import Spectrograms, spectrogram
from regard.models.fast.stepper import LaidOut
from regard.models.wavenet import WaveNet
from regard.tasks.choose import Chooser
from regard.tasks.configure import asked_settings, run_config
from regard.tasks.generate.compose import compose_by_rule, rate_of, roll_in, sound_in
from regard.tasks.generate.predictor import Generator
from regard.tasks.run import start_run
from regard.tokens.config import LABELS_FROM
from regard.tokens.samples import label_word, write_letters
from regard.training.history import RunLog

Row = dict[str, Any]
BLOCKS = {"layers": 2, "width": 128, "heads": 4, "feed_forward": 512}
MUSIC: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "layers": 1, "width": 128, "hidden": 256},
    "relative": {"kind": "gpt2", **BLOCKS, "positions": "shaw", "reach": 64},
    "rotary": {"kind": "llama", **BLOCKS, "feed_forward": 344},
}
WAVENET: dict[str, Any] = {"kind": "wavenet", "width": 64, "channels": 32, "sets": 1}
CONTEXT = 192  # tokens of a window of music: five bars and more
SPEAKER = "jackson"
TESTED = 5  # recordings of each digit, the first ones
RATE = 8000


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="music", choices=("music", "sound", "table"))
    parser.add_argument("--models", nargs="+", default=list(MUSIC), help=f"of music: {', '.join(MUSIC)}")
    parser.add_argument("--minutes", type=float, default=None, help="of the processor, for each run; 2.5, of sound 2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/composing"))
    parser.add_argument("--out", type=Path, default=Path("composing.json"))
    parser.add_argument("--images", type=Path, help="a folder for the pictures")
    parser.add_argument("--tiny", action="store_true", help="some updates of small models")
    options = parser.parse_args(words)
    if options.tiny:
        _tiny()
        return
    rows: list[Row] = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    if options.what == "music":
        for name in options.models:
            row = music(
                name,
                options.runs / f"{name}-{options.seed}",
                60 * (options.minutes or 2.5),
                options.seed,
                options.images,
            )
            rows = _added(rows, row, options.out)
    elif options.what == "sound":
        row = sound(options.runs / f"wavenet-{options.seed}", 60 * (options.minutes or 2), options.seed, options.images)
        rows = _added(rows, row, options.out)
    print(table(rows))


def _added(rows: list[Row], row: Row, out: Path) -> list[Row]:
    """The rows with this one in the place of an older one of the same run, written down."""
    kept = [
        each for each in rows if (each["what"], each["model"], each["seed"]) != (row["what"], row["model"], row["seed"])
    ]
    write_json(out, [*kept, row])
    return [*kept, row]


def trained(data: Sequence[str], model: dict[str, Any], folder: Path, seconds: float, seed: int, **more: Any) -> Row:
    """Train by the recipe in so much time of the processor (0: three updates), unless it was done before; what came of it."""
    steps = {} if seconds else {"steps": 3, "warmup": 0}
    values = {"data": {"train": list(data), **more}, "model": model, "train": {"seed": seed, **steps}}
    if not (folder / "best").exists():
        chooser = Chooser(asked_settings("generate", values), seconds, time.process_time(), time.process_time)
        start_run(run_config("generate", values), folder=folder, chooser=chooser if seconds else None)
    rows = RunLog(folder).rows()
    updates = max(row["step"] for row in rows)
    loss = min(row["loss"] for row in rows if row["kind"] == "valid")
    return {"minutes": seconds / 60, "updates": updates, "validation_loss": loss}


# --- Music


def music(
    name: str, folder: Path, seconds: float, seed: int, images: Path | None, pieces: int = 64, **more: Any
) -> Row:
    """One model of canons: in how many bars of what it writes the second voice is the first, a bar later."""
    about = trained(["builtin/canon"], MUSIC[name], folder, seconds, seed, **{"context": CONTEXT, **more})
    generator = Generator.load(folder)
    began = time.process_time()
    found = compose_by_rule(generator, "canon", pieces)
    spent = time.process_time() - began
    if images is not None:
        written = generator.generate("", seed=4, max_length=CONTEXT - 1)  # as much as a look reads
        roll_in(generator, written).save(images / f"canon-{name}.png")
    size = sum(each.numel() for each in generator.model.parameters())
    return {
        "what": "canon", "model": name, "seed": seed, "parameters": size, **about, "writing_seconds": round(spent, 1),
        "rule": found.data(),
    }  # fmt: skip


# --- Sound


def sound(folder: Path, seconds: float, seed: int, images: Path | None, tiny: bool = False) -> Row:
    """WaveNet on digits or tones: nats a sample, samples a second, and what it writes beside a real sound."""
    with tempfile.TemporaryDirectory() as place:
        test = digits(Path(place)) or tones(Path(place), 20 if tiny else 400)
        more = {"context": 64} if tiny else {}
        about = trained([place], _small(WAVENET) if tiny else WAVENET, folder, seconds, seed, rate=RATE, **more)
    generator = Generator.load(folder)
    right, count = nats(generator, test)
    wrong, _ = nats(generator, [(label, each) for (label, _), (_, each) in zip(_turned(test), test, strict=True)])
    levels = np.concatenate([generator.tokenizer.encode(write_letters(each.samples)) for _, each in test])
    shares = np.bincount(levels) / len(levels)
    alone = -float(sum(share * math.log(share) for share in shares if share))
    fast, plain = (samples_a_second(generator, 40 if tiny else 2000, module) for module in (False, True))
    if images is not None:
        draw(generator, test, 60 if tiny else 4000).save(images / "digits.png")
    assert isinstance(generator.model, WaveNet)
    return {
        "what": "digits" if any(label.isdecimal() for label, _ in test) else "tones", "model": "wavenet", "seed": seed,
        "parameters": sum(each.numel() for each in generator.model.parameters()),
        "receptive_field": generator.model.config.receptive_field, **about, "test_samples": count,
        "nats_a_sample": right, "nats_wrong_label": wrong, "nats_levels_alone": alone, "nats_uniform": math.log(256),
        "samples_a_second": round(fast), "samples_a_second_by_modules": round(plain),
    }  # fmt: skip


def _small(model: dict[str, Any]) -> dict[str, Any]:
    return {**model, "width": 16, "channels": 8, "dilations": [1, 2, 4], "sets": 1}


def _turned(test: list[tuple[str, Sound]]) -> list[tuple[str, Sound]]:
    """The same, but for each a label that is not its own."""
    labels = sorted({label for label, _ in test})
    return [(labels[(labels.index(label) + 1) % len(labels)], each) for label, each in test]


def digits(place: Path) -> list[tuple[str, Sound]] | None:
    """Write the training digits of one speaker into a folder for each; the test digits. None where the data are not there."""
    file = Path(os.environ.get("REGARD_DATA", "nowhere")) / "fsdd" / "fsdd.npz"
    if not file.exists():
        return None
    with np.load(file, allow_pickle=False) as packed:
        data = {name: packed[name] for name in packed.files}
    test: list[tuple[str, Sound]] = []
    for number in np.flatnonzero(data["speaker"] == SPEAKER):
        start, end = data["offset"][number : number + 2]
        label, samples = str(data["digit"][number]), as_float(data["audio"][start:end])
        if data["index"][number] < TESTED:
            test.append((label, Sound(samples, RATE)))
        else:
            (place / label).mkdir(exist_ok=True)
            write_wav(place / label / f"{data['index'][number]}.wav", samples, RATE)
    return test


def tones(place: Path, count: int) -> list[tuple[str, Sound]]:
    """Write built-in tones into a folder for each label; those of the test set."""
    for number in range(count):
        samples, label = tone(SEEDS["train"], number)
        (place / label).mkdir(exist_ok=True)
        write_wav(place / label / f"{number}.wav", samples, RATE)
    made = [tone(SEEDS["test"], number) for number in range(max(2, count // 20))]
    return [(label, Sound(samples.astype(np.float32), RATE)) for samples, label in made]


@torch.inference_mode()
def nats(generator: Generator, test: list[tuple[str, Sound]]) -> tuple[float, int]:
    """The mean loss over every sample of sounds that begin with these labels, each read whole; and how many there are."""
    total, count, special = 0.0, 0, generator.tokenizer.specials
    for label, each in test:
        ids = [special.begin, *generator.tokenizer.encode(write_letters(each.samples, label))]
        stream = TokenStream(np.array(ids[1:]), generator.tokenizer.size, labels_from=LABELS_FROM)
        for batch in evaluation_batches(stream, len(ids), 1):
            part = generator.model(batch).parts["nll"]
            total, count = total + float(part.sum), count + int(part.count)
    return total / count, count


def samples_a_second(generator: Generator, count: int, module: bool) -> float:
    """Samples that one sound gets in a second of the processor, by NumPy's steps or by the modules."""
    laid_out = generator.laid_out
    if module:
        generator.laid_out = LaidOut(generator.model, lambda model: None)
    try:
        label = generator.tokenizer.vocabulary(generator.tokenizer.size)[LABELS_FROM]
        generator.generate(label, max_length=8, min_length=8, seed=1)
        began = time.process_time()
        generator.generate(label, max_length=count, min_length=count, seed=1)
        return count / (time.process_time() - began)
    finally:
        generator.laid_out = laid_out


def draw(generator: Generator, test: list[tuple[str, Sound]], longest: int, shown: int = 3) -> Spectrograms:
    """What is written of some labels, of so many samples at most, above a real sound of each."""
    rate = rate_of(generator)
    labels = list(dict.fromkeys(label for label, _ in test))[:shown]
    texts = [generator.generate(label_word(label), seed=7, max_length=longest) for label in labels]
    written = [
        spectrogram(sound_in(text, rate).samples, rate, f"written: {label}")
        for label, text in zip(labels, texts, strict=True)
    ]
    real = [
        spectrogram(next(each for own, each in test if own == label).samples, rate, f"real: {label}")
        for label in labels
    ]
    return Spectrograms((*written, *real), across=len(labels))


# --- The results


def table(rows: Sequence[Row]) -> str:
    """A line for each run."""
    return "\n".join(f"{_run(row)}  {_by_rule(row) if 'rule' in row else _by_sample(row)}" for row in rows)


def _run(row: Row) -> str:
    size, spent = f"{row['parameters']:>9,} parameters", f"{row['minutes']:g} min, {row['updates']:,} updates"
    return f"{row['what']:8} {row['model']:9} {size}  {spent}  validation {row['validation_loss']:.3f}"


def _by_rule(row: Row) -> str:
    rule = row["rule"]
    low, high = (100 * each for each in rule["interval"])
    kept = f"kept in {100 * rule['share']:.1f}% of {rule['bars']} bars ({low:.1f} to {high:.1f})"
    return f"{kept}, {rule['whole']} of {rule['pieces']} pieces whole, {100 * rule['different']:.0f}% different"


def _by_sample(row: Row) -> str:
    others = f"wrong label {row['nats_wrong_label']:.3f}, levels alone {row['nats_levels_alone']:.3f}"
    speed = f"{row['samples_a_second']:,} samples/s, by modules {row['samples_a_second_by_modules']:,}"
    return f"{row['nats_a_sample']:.3f} nats a sample ({others}), {speed}"


def _tiny() -> None:
    blocks = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
    small = {
        name: {**model, **(blocks if "heads" in model else {"width": 16, "hidden": 16})}
        for name, model in MUSIC.items()
    }
    before = dict(MUSIC)
    MUSIC.update(small)
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            names = ("lstm", "relative")
            rows = [music(name, folder / name, 0.0, 1, folder, pieces=2, builtin_size=20_000) for name in names]
            rows.append(sound(folder / "wavenet", 0.0, 1, folder, tiny=True))
            print(table(rows))
    finally:
        MUSIC.update(before)


if __name__ == "__main__":
    main()
