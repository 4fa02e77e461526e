"""Spoken digits: classified, by unseen speakers, and joined to strings that are transcribed; speed beside a plain loop.

    REGARD_DATA=... python benchmarks/hearing.py [official speakers strings strings-ctc speed] --runs DIR
    python benchmarks/hearing.py table

The data is the Free Spoken Digit Dataset (3,000 recordings of six speakers, Jackson et al.), as `fsdd/fsdd.npz`. Recordings 0
to 4 of each speaker and digit are its test set. Each run is one `regard.train` with the settings below in a folder of its own
under `--runs`; one that was stopped goes on, and what is finished is in `--out` and is not done again. Nothing of a test set
is seen in training: to validate, some training sounds are held out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import regard
from regard.data.sound.batches import SoundBatches
from regard.data.sound.config import SoundAugmentConfig, SoundFormat, SoundsConfig
from regard.data.sound.features import log_mel
from regard.data.sound.load import load_sounds
from regard.data.sound.waves import as_float, write_wav
from regard.files import read_json, write_json, write_text
from regard.models.configs.hearing import ConformerConfig
from regard.models.conformer import SoundClassifier
from regard.noise import noise
from regard.runs import CONFIG
from regard.tasks.configure import run_config
from regard.tasks.evaluate_sounds import evaluate_sounds, evaluate_speech
from regard.tasks.run import resume_run, start_run
from regard.training.optimiser import clip_gradient

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEST = 5  # recordings 0 to 4 of each speaker and digit
FEWEST, MOST = 3, 7  # digits of a string
MODEL = {"layers": 3, "width": 64, "feed_forward": 192, "channels": 16}
TRAIN = {"batch_tokens": 2048, "optimiser": "muon", "lr": 1e-2, "patience": 0, "validate_every": 100, "seed": 1}
VARIED = {"speed": 0.1, "noise": 10.0, "tract": 0.1, "tempo": 0.15, "colour": 3.0, "time_masks": 1, "mel_masks": 1}
TINY = ("official", "speaker-ada", "strings", "speed")
KNOWN = {"normalise": "level", "augment": VARIED}
UNKNOWN = {"normalise": "mean", "augment": VARIED}  # a voice and a microphone that nobody heard
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Digits:
    """The recordings, each with its digit, its speaker and its number."""

    waves: list[np.ndarray]  # int16
    digit: np.ndarray
    speaker: np.ndarray
    index: np.ndarray
    rate: int

    @classmethod
    def read(cls) -> Digits:
        """From the folder that REGARD_DATA names."""
        with np.load(Path(os.environ["REGARD_DATA"]) / "fsdd" / "fsdd.npz") as file:
            found = {name: file[name] for name in file.files}
        places = zip(found["offset"], found["offset"][1:], strict=False)
        waves = [found["audio"][start:end] for start, end in places]
        return cls(waves, found["digit"], found["speaker"], found["index"], int(found["sr"]))

    @classmethod
    def made(cls) -> Digits:
        """Hums of ten pitches by two voices, in the place of digits, so that the tests need no data."""
        rows = [(d, s, i) for d in range(10) for s in range(2) for i in range(7)]
        time_ = np.arange(1600) / 8000
        waves = [
            (9000 * np.sin(2 * np.pi * (300 + 150 * d + 20 * s) * time_[: 1400 + 20 * i])).astype(np.int16)
            for d, s, i in rows
        ]
        digit, speaker, index = (np.array(each) for each in zip(*rows, strict=True))
        return cls(waves, digit, np.array(["ada", "bob"])[speaker], index, 8000)

    @property
    def speakers(self) -> list[str]:
        return sorted(set(self.speaker.tolist()))


def write_clips(digits: Digits, folder: Path) -> None:
    """Every recording as a WAV file, and manifests: train, test, and without and only each speaker."""
    if (folder / "made").exists():
        return
    names = []
    for wave, digit, speaker, index in zip(digits.waves, digits.digit, digits.speaker, digits.index, strict=True):
        names.append(f"clips/{digit}_{speaker}_{index}.wav")
        write_wav(folder / names[-1], as_float(wave), digits.rate)
    test = digits.index < TEST
    sets = {"train": ~test, "test": test}
    for speaker in digits.speakers:
        sets |= {f"without-{speaker}": digits.speaker != speaker, f"only-{speaker}": digits.speaker == speaker}
    for name, inside in sets.items():
        rows = [{"audio": names[row], "label": str(digits.digit[row])} for row in np.flatnonzero(inside)]
        write_text(folder / f"{name}.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    write_text(folder / "made", "whole\n")


def write_strings(digits: Digits, folder: Path, counts: dict[str, int]) -> None:
    """Strings of 3 to 7 digits of one speaker, with pauses between; those of a test set are of test recordings only."""
    if (folder / "strings-made").exists():
        return
    for which, count in counts.items():
        inside = np.flatnonzero((digits.index < TEST) == (which == "test"))
        dice, rows = np.random.default_rng((7, which == "test")), []
        for number in range(count):
            speaker = dice.choice(digits.speakers)
            of_speaker = inside[digits.speaker[inside] == speaker]
            chosen = dice.choice(of_speaker, dice.integers(FEWEST, MOST + 1))
            parts: list[np.ndarray] = []
            for row in chosen:
                parts += [np.zeros(int(dice.uniform(0.02, 0.2) * digits.rate)), as_float(digits.waves[row])]
            name = f"strings/{which}-{number}.wav"
            write_wav(folder / name, np.concatenate([*parts, np.zeros(digits.rate // 20)]), digits.rate)
            rows.append({"audio": name, "text": " ".join(NAMES[digits.digit[row]] for row in chosen)})
        write_text(folder / f"strings-{which}.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    single = [{"audio": row["audio"], "text": NAMES[int(row["label"])]} for row in rows]  # one digit is a string, too
    write_text(folder / "digits-train.jsonl", "\n".join(map(json.dumps, single)) + "\n")
    write_text(folder / "strings-made", "whole\n")


def trained(task: str, folder: Path, values: Row) -> tuple[Path, float]:
    """Train, or go on with a run that was stopped; its folder, and how long it took in all, in minutes."""
    if not (folder / "best" / "config.json").exists() or not (folder / "minutes.json").exists():
        began = time.perf_counter()
        if (folder / CONFIG).exists():  # also one that was stopped before its first checkpoint
            resume_run(folder)
        else:
            start_run(run_config(task, values), folder=folder)
        write_json(folder / "minutes.json", {"minutes": (time.perf_counter() - began) / 60})
    return folder, float(read_json(folder / "minutes.json")["minutes"])


def classified(name: str, train: Path, test: Path, runs: Path, steps: int, heard: Row) -> Row:
    """A classifier of single digits, and its accuracy."""
    data = {"train": [str(train)], **heard}
    values = {"data": data, "model": MODEL, "train": {**TRAIN, "steps": steps}}
    folder, minutes = trained("classify", runs / name, values)
    found = evaluate_sounds(regard.load(folder, task="classify-sounds"), [str(test)])
    scores = found.scores
    return {
        "name": name, "accuracy": scores.accuracy, "low": scores.low, "high": scores.high, "sounds": len(found.wanted),
        "steps": steps, "minutes": minutes,
    }  # fmt: skip


def transcribed(name: str, data: Path, runs: Path, steps: int, kind: str) -> list[Row]:
    """A transcriber of strings; one with a decoder is decoded by CTC, by attention, and by both."""
    names = [str(data / "strings-train.jsonl"), str(data / "digits-train.jsonl")]
    table = {"train": names, "normalise": "level", "augment": VARIED, "hold_out": 100}
    more = {"decoder_layers": 1, "ctc_weight": 0.5} if kind == "conformer-transformer" else {}
    values = {
        "data": table, "tokens": {"kind": "word", "min_count": 1}, "model": {**MODEL, "kind": kind, **more},
        "train": {**TRAIN, "steps": steps}, "validate": {"sounds": 40},
    }  # fmt: skip
    folder, minutes = trained("transcribe", runs / name, values)
    model = regard.load(folder, task="transcribe")
    ways = {"CTC": 1.0, "attention": 0.0, "both": None} if kind == "conformer-transformer" else {"CTC alone": None}
    rows = []
    for way, share in ways.items():
        for beam in (1, 8):
            found = evaluate_speech(model, [str(data / "strings-test.jsonl")], ctc=share, beam=beam)
            rows.append({"name": name, "way": way, "beam": beam, **found.data(), "steps": steps, "minutes": minutes})
    return rows


def plain_step(model: nn.Module, optimiser: torch.optim.Optimizer, batch: Any) -> None:
    """One update as anyone would write it with torch alone."""
    optimiser.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model.logits(batch), batch.labels)  # type: ignore[operator]
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def our_step(model: nn.Module, optimiser: torch.optim.Optimizer, batch: Any, number: int) -> None:
    """One update as the training loop has it: seeded noise, a loss of parts, one clip."""
    optimiser.zero_grad(set_to_none=True)
    with noise(1, number, 0):
        model(batch).objective(batch.counts).backward()
    clip_gradient(list(model.parameters()), 1.0)
    optimiser.step()


def speed(train: Path, updates: int) -> Row:
    """Features a second, the share of the input, and updates beside a plain loop of the same network, in turns."""
    sets = load_sounds(SoundsConfig(train=(str(train),), normalise="level", hold_out=50), "label")
    batches = SoundBatches(sets.train, sets.labels(), TRAIN["batch_tokens"], 1, SoundAugmentConfig(**VARIED))
    config = ConformerConfig(**MODEL)
    torch.manual_seed(1)
    ours, plain = (SoundClassifier(config, sets.format, len(sets.labels())).train() for _ in range(2))
    first, second = (torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True) for model in (ours, plain))
    spent: dict[str, list[float]] = {"input": [], "ours": [], "plain": []}
    for number in range(updates):
        began = time.process_time()
        batch = batches.get(0, number % batches.count(0))
        spent["input"].append(time.process_time() - began)
        turns = {
            "ours": partial(our_step, ours, first, batch, number),
            "plain": partial(plain_step, plain, second, batch),
        }
        for name in (
            ("ours", "plain") if number % 2 else ("plain", "ours")
        ):  # the second finds its shapes set up already
            began = time.process_time()
            turns[name]()
            spent[name].append(time.process_time() - began)
    medians = {name: float(np.median(each[1:])) for name, each in spent.items()}
    wave = np.random.default_rng(1).uniform(-1, 1, 10 * sets.format.rate).astype(np.float32)
    return {
        "times_plain": medians["plain"] / medians["ours"],
        "input_share": medians["input"] / (medians["input"] + medians["ours"]),
        "seconds_of_sound_a_second": 10 / _seconds(lambda: log_mel(torch.from_numpy(wave), sets.format)),
        "ms": {name: 1000 * value for name, value in medians.items()},
        "librosa": _librosa(wave, sets.format),
    }


def _seconds(work: Callable[[], object], times: int = 9) -> float:
    """The median of the processor's time for something that was done once before."""
    work()
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return float(np.median(spent))


def _librosa(wave: np.ndarray, sound: SoundFormat) -> Row | None:
    """The largest difference from librosa's log-mels of 10 seconds, and its speed; None where it is not installed."""
    try:
        import librosa
    except ImportError:
        return None

    def theirs() -> np.ndarray:
        energy = librosa.feature.melspectrogram(
            y=wave, sr=sound.rate, n_fft=sound.transform, hop_length=sound.hop_samples, win_length=sound.window_samples,
            n_mels=sound.mels, htk=True, norm=None, pad_mode="constant",
        )  # fmt: skip
        return np.log(np.maximum(energy, 1e-10))

    ours = log_mel(torch.from_numpy(wave), sound).numpy().T
    return {"largest_difference": float(np.abs(theirs() - ours).max()), "speed": 10 / _seconds(theirs)}


def run_part(part: str, digits: Digits, data: Path, runs: Path, tiny: bool) -> Any:
    """Measure one part."""
    steps = {"official": 600, "speakers": 1200, "strings": 2700, "strings-ctc": 900}
    short = 2 if tiny else 0
    if part == "official":
        return classified("official", data / "train.jsonl", data / "test.jsonl", runs, short or steps[part], KNOWN)
    if part.startswith("speaker-"):
        who = part.removeprefix("speaker-")
        names = data / f"without-{who}.jsonl", data / f"only-{who}.jsonl"
        return classified(part, *names, runs, short or steps["speakers"], UNKNOWN)
    if part == "speed":
        return speed(data / "train.jsonl", 3 if tiny else 40)
    write_strings(digits, data, {"train": 24, "test": 4} if tiny else {"train": 2500, "test": 300})
    kind = "conformer" if part == "strings-ctc" else "conformer-transformer"
    return transcribed(part, data, runs, short or steps[part], kind)


def table(found: Row) -> None:
    """Print what was measured."""
    speakers = [row for name, row in found.items() if name.startswith("speaker-")]
    if row := found.get("official"):
        print(
            f"official split   {row['accuracy']:.2f}% ({row['low']:.1f} to {row['high']:.1f})  {row['minutes']:.1f} min"
        )
    for row in speakers:
        print(f"{row['name']:16} {row['accuracy']:.2f}%  {row['minutes']:.1f} min")
    if speakers:
        each = [row["accuracy"] for row in speakers]
        print(f"unseen speakers  mean {np.mean(each):.2f}%, worst {min(each):.2f}% of {len(each)}")
    for name in ("strings", "strings-ctc"):
        for row in found.get(name, ()):
            print(
                f"{name:12} {row['way']:10} beam {row['beam']}  WER {row['wer']['value']:.2f}%  CER {row['cer']['value']:.2f}%"
            )
    if row := found.get("speed"):
        features = f"{row['seconds_of_sound_a_second']:,.0f} s of sound a second"
        print(f"{row['times_plain']:.2f} times a plain loop; input {row['input_share']:.0%}; features of {features}")
        if row["librosa"]:
            theirs = row["librosa"]
            print(f"librosa {theirs['speed']:,.0f} s; largest difference {theirs['largest_difference']:.1e}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["official", "speakers", "strings", "strings-ctc", "speed"])
    parser.add_argument("--runs", type=Path, default=Path("runs/hearing"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/hearing.json"))
    parser.add_argument("--tiny", action="store_true", help="a few updates on made sounds")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if asked.tiny:
        with tempfile.TemporaryDirectory() as place:
            return measure(
                ["official", "speaker-ada", "strings", "speed"],
                Digits.made(),
                Path(place),
                Path(place) / "out.json",
                True,
            )
    if asked.parts == ["table"]:
        table(read_json(asked.out))
        return 0
    return measure(asked.parts, Digits.read(), asked.runs, asked.out, False)


def measure(parts: Sequence[str], digits: Digits, runs: Path, out: Path, tiny: bool) -> int:
    """Measure the parts that are not in `out` yet."""
    data = runs / "data"
    write_clips(digits, data)
    each = [
        name
        for part in parts
        for name in ([f"speaker-{who}" for who in digits.speakers] if part == "speakers" else [part])
    ]
    for part in each:
        found = read_json(out) if out.exists() else {}
        if part not in found:
            found[part] = run_part(part, digits, data, runs, tiny)
            write_json(out, found)
    table(read_json(out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
