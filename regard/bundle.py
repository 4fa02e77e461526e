"""A trained model on disk: a folder with `config.json`, `model.safetensors`, the tokenizer, `metrics.json` and a card.

`config.json` names the format's version and the SHA-256 of every other file a model is made of, so that a truncated or
altered bundle is refused before anything of it is used.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from pydantic import Field, ValidationError, create_model
from torch import nn

from regard import __version__
from regard.blocks import Undrawn
from regard.brief import brief, in_short
from regard.config import StrictConfig, Tables, check
from regard.data.config import ChatFormat
from regard.data.graphs.config import GraphFormat
from regard.data.pictures.config import PictureFormat
from regard.data.sound.config import SoundFormat
from regard.decode.config import DecodeConfig
from regard.errors import RegardError
from regard.files import new_folder, read_json, sha256, standing_folder, write_json, write_text
from regard.models.kinds import OneModelConfig
from regard.models.table import build
from regard.noise import GENERATOR
from regard.plugins import check_plugins, load_plugins, needed_by
from regard.runs import EXAMPLES
from regard.tensors import map_tensors, read_tensors, weights_of, write_tensors
from regard.tokens import TextTokenizer, TokenizerPair, TokensConfig

FORMAT = 1
WEIGHTS = "model.safetensors"


class Made(StrictConfig):
    """With what a run or a bundle was made. Equal bits can be expected only where all of it is equal."""

    regard: str = __version__
    commit: str | None = None  # of Regard's own source, where it runs from a checkout; "-dirty" if that was changed
    torch: str = ""
    python: str = ""
    platform: str = ""  # such as "Linux x86_64"
    device: str = ""
    threads: int = 0  # of torch, within an operation
    precision: str = ""  # "float32", "tf32", "bf16" or "fp16"
    noise: str = "SFC64"  # the generator of dropout; runs that do not say it had this one

    def differences(self, other: Made) -> list[str]:
        """List what is different in `other` and changes bits, as a person reads it: "torch 2.5 (was 2.4)"."""
        names = ("torch", "threads", "platform", "device", "precision", "noise")
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name} {new} (was {old})" for name, old, new in pairs if old != new]


def made_now(device: str | torch.device = "cpu", precision: str = "float32") -> Made:
    """Describe this process: its torch, its device and threads, and the precision that it is said to use."""
    kind = torch.device(device)
    return Made(
        commit=own_commit(),
        torch=torch.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        device=str(kind) if kind.type == "cpu" else f"{kind} ({_device_name(kind)})",
        threads=torch.get_num_threads(),
        precision=precision,
        noise=GENERATOR,
    )


@lru_cache(maxsize=1)
def own_commit() -> str | None:
    """The commit that this package is a checkout of; None where it was installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git here, or not a repository that it may read
        return None
    return found.stdout.strip() or None


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


class BundleConfig(StrictConfig):
    """What `config.json` holds."""

    format: int = FORMAT
    regard: str = __version__
    task: str = "translate"
    languages: tuple[str, str] | None = None
    bleu_tokenizer: str = "auto"  # how a translation model's BLEU cuts words
    labels: tuple[str, ...] = ()  # what a classifier tells apart
    pairs: bool | None = None  # whether a classifier was trained on pairs of texts; None: on both, or nobody noted it
    longest: int | None = None  # tokens of a text that a classifier reads; longer ones are cut
    pictures: PictureFormat | None = None  # what a model that sees is shown
    sounds: SoundFormat | None = None  # what a model that hears is given
    graphs: GraphFormat | None = None  # what a model of graphs is shown
    tokens: TokensConfig | None = None  # None: it neither reads nor writes text
    vocabulary: tuple[int, ...] = ()  # of source and target, or of the one tokenizer; numbers of a step, without one
    chat: ChatFormat | None = None  # of a language model that answers prompts
    sequences: str = ""  # of bits that it remembers: builtin/copy-bits
    model: OneModelConfig
    decode: DecodeConfig = DecodeConfig()
    made: Made | None = None  # None: an older Regard did not say
    files: dict[str, str] = Field(default_factory=dict)
    plugins: tuple[str, ...] = ()  # without which the model means nothing

    def reads(self, otherwise: int) -> int:
        """Most tokens of a text that the model reads: as many as it learned from, where its positions reach so far."""
        wanted = self.longest or otherwise
        return min(wanted, self.model.longest or wanted)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model ready to run, with all it needs to take text and give text."""

    config: BundleConfig
    model: nn.Module
    pair: TokenizerPair | None
    metrics: Tables

    def words(self) -> list[str]:
        """The kind of model, its languages or labels, and its size: "transformer", "en-de", "2.6M"."""
        size = in_short(sum(parameter.numel() for parameter in self.model.parameters()))
        labels = f"{len(self.config.labels)} labels" if self.config.labels else ""
        return [self.config.model.kind, "-".join(self.config.languages or ()), labels, size]

    def __repr__(self) -> str:
        return brief(self, self.config.task, *self.words())

    @property
    def tokenizers(self) -> TokenizerPair:
        if self.pair is None:
            raise RegardError(f"a model to {self.config.task} has no tokenizer: it neither reads nor writes text")
        return self.pair

    @property
    def tokenizer(self) -> TextTokenizer:
        """The one tokenizer of a model that has no source."""
        return self.tokenizers.target


def save_bundle(folder: str | Path, bundle: Bundle) -> Path:
    """Write a bundle in the place of `folder`; the old one stays whole until the new one is."""
    folder = Path(folder)
    with new_folder(folder) as inside:
        names = [] if bundle.pair is None else bundle.pair.save(inside)
        write_tensors(inside / WEIGHTS, weights_of(bundle.model))
        files = {name: sha256(inside / name) for name in [*names, WEIGHTS]}
        config = bundle.config.model_copy(update={"files": files})
        write_json(inside / "config.json", _dumped(config))
        write_json(inside / "metrics.json", bundle.metrics)
        write_text(inside / "README.md", card(bundle))
    return folder


def _dumped(config: BundleConfig) -> Tables:
    """The values that `config.json` holds; plugins and chats only where there are any: a Regard that knows none can read it."""
    values = config.model_dump(mode="json")
    values["plugins"] = list(needed_by(values))
    return {name: value for name, value in values.items() if value or name not in ("plugins", "chat")}


def load_bundle(folder: str | Path, device: str | torch.device = "cpu") -> Bundle:
    """Read a bundle back, checked file by file, ready to run (in evaluation mode)."""
    folder = standing_folder(folder)
    if not (folder / "config.json").exists():
        raise RegardError(f"{folder} is not a bundle: it has no config.json")
    config = read_config(folder)
    _check_files(folder, config)
    pair = None if config.tokens is None else TokenizerPair.load(folder)
    if pair is not None:
        _check_vocabulary(folder, config, pair)
    with Undrawn():  # every parameter is read from the file, or the file is refused
        model = build(
            config.task,
            config.model,
            config.vocabulary,
            labels=len(config.labels),
            pictures=config.pictures,
            sounds=config.sounds,
            graphs=config.graphs,
        )
    load_weights(model, folder / WEIGHTS)
    metrics = read_json(folder / "metrics.json") if (folder / "metrics.json").exists() else {}
    return Bundle(config, model.to(device).eval(), pair, metrics)


def read_config(folder: Path) -> BundleConfig:
    values = read_json(folder / "config.json")
    version = values.get("format") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise RegardError(f"{folder}/config.json names no format; it is not a Regard bundle")
    if version > FORMAT:
        raise RegardError(
            f"{folder} has format {version} (written by Regard {values.get('regard', '?')}); this Regard {__version__} reads "
            f"up to {FORMAT}: upgrade it with pip install -U regard"
        )
    load_plugins()
    check_plugins(values.get("plugins", ()), str(folder))
    try:
        return BundleConfig.model_validate(values)
    except ValidationError:  # what is wrong is told with every kind of model at hand
        from regard.models.config import ModelConfig

        told = create_model("BundleConfig", __base__=BundleConfig, model=(ModelConfig, ...))
        return check(told, values, f"{folder}/config.json")


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the tensors of a file into a model; a missing, extra or wrongly shaped one is an error."""
    tensors, parameters = map_tensors(path), weights_of(model)
    missing, extra = sorted(parameters.keys() - tensors.keys()), sorted(tensors.keys() - parameters.keys())
    if missing or extra:
        names = f"{len(missing)} missing {missing[:3]}, {len(extra)} unknown {extra[:3]}"
        raise RegardError(f"{path} does not fit the model of config.json: {names}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tensors[name].shape != parameter.shape:
                shapes = f"{tuple(tensors[name].shape)} in the file, {tuple(parameter.shape)} in config.json"
                raise RegardError(f"{path}: {name} is {shapes}")
            parameter.copy_(tensors[name])


def card(bundle: Bundle) -> str:
    """The model card: what the model is, what it scored, how to use it."""
    config = bundle.config
    about = {
        "translate": " → ".join(config.languages) if config.languages else "source → target",
    }.get(config.task, "")
    if config.labels:
        about = f"{len(config.labels)} labels: {', '.join(config.labels[:12])}"
    size = sum(p.numel() for p in bundle.model.parameters())
    article = "An" if config.model.kind[0] in "aeiou" else "A"
    metrics = "\n".join(f"| {name} | {value} |" for name, value in bundle.metrics.items())
    return (
        f"# {article} {config.model.kind} for {config.task}{f' ({about})' if about else ''}\n\n"
        f"{size:,} parameters{_inputs(config)} · Regard {config.regard}, format {config.format}\n\n"
        f"{_example(config.task)}"
        f"| on validation data | |\n|---|---|\n{metrics}\n"
    )


def _example(task: str) -> str:
    return f"    {EXAMPLES[task].format(model='.')}\n\n" if task in EXAMPLES else ""


def _inputs(config: BundleConfig) -> str:
    """The inputs of a model in a few words, for its card."""
    parts = ""
    if config.pictures is not None:
        parts += f" · pictures of {config.pictures.size} x {config.pictures.size}"
    if config.sounds is not None:
        parts += f" · sounds at {config.sounds.rate:,} Hz in {config.sounds.mels} mel bands"
    if config.graphs is not None:
        parts += f" · {'graphs' if config.graphs.whole else 'nodes'} with {config.graphs.features:,} features a node"
    if config.tokens is not None:
        parts += f" · {config.tokens.kind} tokens, {' and '.join(f'{n:,}' for n in config.vocabulary)}"
    return parts


def _check_files(folder: Path, config: BundleConfig) -> None:
    """Every file the bundle is made of is named in config.json, is there, and has the SHA-256 written there."""
    for name in config.files:
        if name in ("", "..") or Path(name).name != name:
            raise RegardError(f"{folder}/config.json names a file outside the bundle: {name!r}")
        if not (folder / name).is_file():
            raise RegardError(f"{folder} has no {name}; the bundle is not whole, copy it again")
    for name in [WEIGHTS, *([] if config.tokens is None else TokenizerPair.files(folder))]:
        if name not in config.files:
            raise RegardError(f"{folder}/config.json has no SHA-256 of {name}; the bundle was altered, copy it again")
    for name, digest in sorted(config.files.items(), key=lambda each: each[0] != WEIGHTS):
        if sha256(folder / name) != digest:
            if name == WEIGHTS:
                read_tensors(folder / WEIGHTS)  # a pickle or a truncated file says so itself
            raise RegardError(
                f"{folder}/{name} is not the file this bundle was saved with (SHA-256 differs); copy it again"
            )


def _check_vocabulary(folder: Path, config: BundleConfig, tokenizers: TokenizerPair) -> None:
    both = (tokenizers.source.size, tokenizers.target.size)
    sizes = both if config.task == "translate" or len(config.vocabulary) == 2 else both[1:]
    fits = sizes == config.vocabulary
    # Other libraries pad their tables to round numbers.
    if config.tokens is not None and config.tokens.kind == "imported":
        fits = len(sizes) == len(config.vocabulary) and sizes <= config.vocabulary
    if not fits:
        raise RegardError(
            f"{folder}: the tokenizers have {sizes} tokens, config.json says {config.vocabulary}; copy it again"
        )
