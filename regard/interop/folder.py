"""A Hugging Face folder as a bundle, and a bundle as a folder that transformers loads.

bundle = import_folder("all-MiniLM-L6-v2")
export_folder(load_bundle("runs/generate/1/best"), "for-others")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.bundle import Bundle
from regard.errors import Advice, Option, RegardError, UsageError, Verb
from regard.files import new_folder, read_json, write_json
from regard.interop import bert, gpt2, llama, marian, vit
from regard.interop.bert import read_longest, read_pooling, write_pooling
from regard.interop.family import Family, Settings, assemble, their_tensors
from regard.interop.tokenizer import read_specials, read_tokenizer, write_specials, write_tokenizer
from regard.interop.weights import SINGLE, read_weights
from regard.models.config import BertConfig, TransformerConfig
from regard.tensors import write_tensors
from regard.tokens import TextTokenizer

FAMILIES: dict[str, Family] = {each.FAMILY.name: each.FAMILY for each in (gpt2, bert, llama)}
# A GPT-3 whose attention is not banded is a GPT-2.
EXPORTED: dict[str, Family] = {"gpt2": gpt2.FAMILY, "gpt3": gpt2.FAMILY, "bert": bert.FAMILY, "llama": llama.FAMILY}


def import_folder(path: str | Path, report: Callable[[str], None] = lambda words: None) -> Bundle:
    """The model and tokenizer of a folder with config.json and safetensors, ready to run.

    `report` hears what was read from which file where several could say it.
    """
    folder = Path(path)
    settings = _read_settings(folder)
    if settings.values.get("model_type") == vit.NAME:  # sees pictures: no tokenizer, but a preprocessor
        return vit.read_folder(folder, settings)
    if settings.values.get("model_type") == marian.NAME:  # two sides, each with its tokenizer
        return marian.read_folder(folder, settings)
    family = _family(settings)
    tokenizer = read_tokenizer(folder)
    text = TextTokenizer(tokenizer, read_specials(folder, family.task, tokenizer, report))
    tensors = family.full_names(read_weights(folder))
    config = family.read(settings, tensors.keys())
    pooling = read_pooling(folder)
    if pooling is not None and isinstance(config, BertConfig):
        config = config.model_copy(update={"pooling": pooling})
    bundle = assemble(family, config, settings.size("vocab_size"), tensors, text, str(folder))
    if pooling is None:
        return bundle
    return replace(bundle, config=bundle.config.model_copy(update={"longest": read_longest(folder)}))


def export_folder(bundle: Bundle, path: str | Path) -> Path:
    """Write config.json, model.safetensors and the tokenizer so that transformers' Auto classes load them."""
    path = Path(path)
    if bundle.config.model.kind == vit.NAME:
        refuse_to_replace(path)
        with new_folder(path) as inside:
            vit.write_folder(bundle, inside)
        return path
    if isinstance(bundle.config.model, TransformerConfig):
        marian.write(bundle.config.model)  # refuses what it cannot express
        refuse_to_replace(path)
        with new_folder(path) as inside:
            marian.write_folder(bundle, inside)
        return path
    family, config = _exported_as(bundle), bundle.config.model
    values = family.write(config)
    refuse_to_replace(path)
    with new_folder(path) as inside:
        common = {"model_type": family.name, "vocab_size": bundle.config.vocabulary[0], "torch_dtype": "float32"}
        write_json(inside / "config.json", values | common | write_specials(bundle, inside))
        write_tensors(inside / SINGLE, their_tensors(family, bundle))
        write_tokenizer(bundle, inside)
        if isinstance(config, BertConfig) and not config.head:
            write_pooling(inside, config, bundle.config.longest)
    return path


def refuse_to_replace(path: Path) -> None:
    """A folder that a person names for something new must not hold anything else."""
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise UsageError(
            f"{path} already exists", Advice("name another place with ", Option("out"), ", or remove it first")
        )


def _read_settings(folder: Path) -> Settings:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    if not (folder / "config.json").exists():
        raise RegardError(f"{folder} has no config.json", "name the folder that holds a model's files")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise RegardError(f"{folder}/config.json does not hold a table", "copy it again")
    if isinstance(values.get("format"), int) and "regard" in values:
        raise UsageError(
            f"{folder} is a bundle of Regard already", Advice("it can be used as it is: ", Verb("verify", str(folder)))
        )
    return Settings(values, f"{folder}/config.json")


def _family(settings: Settings) -> Family:
    name, known = settings.values.get("model_type"), ", ".join(sorted((*FAMILIES, marian.NAME, vit.NAME)))
    if not isinstance(name, str):
        raise RegardError(f"{settings.origin} has no model_type", f"Regard imports {known}")
    if name not in FAMILIES:
        raise RegardError(f"{settings.origin}: Regard cannot import a model of type {name}", f"it imports {known}")
    return FAMILIES[name]


def _exported_as(bundle: Bundle) -> Family:
    kind, task = bundle.config.model.kind, bundle.config.task
    family = EXPORTED.get(kind)
    if family is None or family.task != task:
        raise RegardError(
            f"a {kind} for {task} has no equal in transformers",
            "transformer for translate, gpt2, gpt3 (without a band) and llama for generate, bert for fill and vit for classify "
            "can be exported",
        )
    return family
