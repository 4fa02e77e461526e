"""`regard import` and `regard export`: models from elsewhere made into bundles, and bundles written for other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import regard
from regard.cli.options import AsJson, RunFolder
from regard.cli.output import print_json, print_table, say
from regard.errors import RegardError, UsageError, nearest
from regard.runs import MODELS, bundle_folder
from regard.tasks.table import TASKS

if TYPE_CHECKING:
    from regard.bundle import Bundle

PICKLES = (".pth", ".pt", ".ckpt")
ARCHIVE = ".zip"


def import_model(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE",
            help="A folder of Hugging Face with safetensors (GPT-2, BERT, LLaMA, Marian, ViT), a .bin of llama2.c, "
            "or a .zip of either, or of a bundle.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Where the bundle goes.", show_default="models/NAME"),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The tokenizer of a llama2.c file.", show_default="the one beside it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take in a model from elsewhere.

    Its weights and tokenizer become a bundle, which every other command takes with -m.
    """
    folder = out or MODELS / name_of(source)
    check_source(source, tokens)
    from regard import interop
    from regard.bundle import save_bundle

    interop.refuse_to_replace(folder)
    if source.suffix == ARCHIVE and source.is_file():
        bundle = interop.import_archive(source, folder, report=say)
    else:
        foreign = source.is_dir()
        bundle = interop.import_folder(source, report=say) if foreign else interop.import_llama2c(source, tokens)
        save_bundle(folder, bundle)
    facts = about(bundle, folder)
    if as_json:
        print_json(facts)
        return
    print_table(
        ("", ""), [(key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in facts.items()]
    )
    example = TASKS[bundle.config.task].example.format(model=folder)
    alone = f'regard vectors -m {folder} "a text"'  # without a head there are only vectors
    say(f"use it with: {example if getattr(bundle.config.model, 'head', True) else alone}")


def name_of(source: Path) -> str:
    """Name a bundle as its folder, or as its file without the ending; refuse a source that is not there."""
    if not source.exists():
        raise UsageError(f"there is no {source}; name a folder of Hugging Face, or a .bin of llama2.c")
    path = source.resolve()
    return path.name if path.is_dir() else path.stem


def check_source(source: Path, tokens: Path | None) -> None:
    """Refuse what cannot be taken in, before torch is imported."""
    if (source.is_dir() or source.suffix == ARCHIVE) and tokens is not None:
        raise UsageError("--tokens is for files of llama2.c; a folder has its own tokenizer")
    if source.is_file() and (source.suffix == ".safetensors" or source.name == "config.json"):
        raise UsageError(f"name the folder that {source.name} lies in: regard import {source.parent}")
    if source.suffix in PICKLES and source.is_file():
        raise RegardError(
            f"{source} is a pickle; loading one can run any program, so it is refused. Convert it where you trust it: "
            "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')"
        )


def about(bundle: Bundle, folder: Path) -> dict[str, object]:
    config = bundle.config
    return {
        "bundle": str(folder),
        "model": config.model.kind,
        "parameters": sum(parameter.numel() for parameter in bundle.model.parameters()),
        **_takes(bundle),
        "task": config.task,
    }


def _takes(bundle: Bundle) -> dict[str, object]:
    """Facts about the texts or the pictures that the model takes."""
    config = bundle.config
    if config.pictures is not None:
        return {"pictures": f"{config.pictures.size} x {config.pictures.size}", "labels": len(config.labels)}
    special, label = bundle.tokenizer.specials, bundle.tokenizer.labels
    return {
        "vocabulary": config.vocabulary[0],
        "longest": getattr(config.model, "max_length", None),
        "begins with": label([special.begin])[0],
        "ends with": " or ".join(label([special.end, *special.also_end])),
    }


FORMS = {  # by the library that reads them, and the function of `regard.interop` that writes them
    "hf": "export_folder",
    "ctranslate2": "export_ctranslate2",
    "onnx": "export_onnx",
}
LOADED_BY = {
    "translate": "AutoModelForSeq2SeqLM",
    "generate": "AutoModelForCausalLM",
    "fill": "AutoModelForMaskedLM",
    "classify-pictures": "AutoModelForImageClassification",
}


def export_model(
    run: RunFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="A new folder.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(metavar="FORM", help="hf (for transformers), ctranslate2, or onnx (graphs, for onnxruntime)."),
    ] = "hf",
    as_json: AsJson = False,
) -> None:
    """Write a model for other libraries.

    transformers has equals of gpt2, llama, bert, vit and (as Marian) of a transformer with norms behind and sinusoidal
    positions; CTranslate2 and ONNX of transformer, gpt1, gpt2, gpt3 and llama. Anything else is refused in words.
    """
    if to not in FORMS:
        raise UsageError(f"no form {to}", nearest(to, FORMS))
    folder = bundle_folder(run)
    from regard import interop

    bundle = regard.load(folder).bundle
    getattr(interop, FORMS[to])(bundle, out)
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    if as_json:
        print_json({"folder": str(out), "files": files})
        return
    print(out)
    say(_loaded(to, bundle, out))


def _loaded(to: str, bundle: Bundle, out: Path) -> str:
    """How a person goes on with what was written."""
    if to == "ctranslate2":
        return (
            f'load it with: ctranslate2.{"Translator" if bundle.config.task == "translate" else "Generator"}("{out}")'
        )
    if to == "onnx":
        return f"{out / 'README.md'} has a loop that runs it, {out / 'regard.json'} all names and shapes"
    loader = LOADED_BY[bundle.config.task] if getattr(bundle.config.model, "head", True) else "AutoModel"
    return f'load it with: transformers.{loader}.from_pretrained("{out}")'
