"""`regard export`: a model for other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import AsJson, RunFolder
from regard.cli.output import print_json, say
from regard.errors import UsageError, nearest

FORMS = {"hf": "transformers"}
LOADED_BY = {
    "generate": "AutoModelForCausalLM",
    "fill": "AutoModelForMaskedLM",
    "classify-pictures": "AutoModelForImageClassification",
}


def export_model(
    run: RunFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="A new folder.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="FORM", help="hf: a folder that transformers loads.")] = "hf",
    as_json: AsJson = False,
) -> None:
    """Write a model for other libraries.

    gpt2, llama, bert and vit have equals in transformers; anything else is refused.
    """
    if to not in FORMS:
        raise UsageError(f"no form {to}{nearest(to, FORMS)}")
    from regard.runs import bundle_folder

    folder = bundle_folder(run)
    from regard.bundle import load_bundle
    from regard.interop import export_folder

    bundle = load_bundle(folder)
    export_folder(bundle, out)
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    if as_json:
        print_json({"folder": str(out), "files": files})
        return
    print(out)
    loader = LOADED_BY[bundle.config.task] if getattr(bundle.config.model, "head", True) else "AutoModel"
    say(f'load it with: transformers.{loader}.from_pretrained("{out}")')
