"""A bundle comes back bit for bit, or, when it is truncated, altered, of another make, is refused in words."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.brief import in_short, quoted
from regard.bundle import load_bundle, save_bundle
from regard.errors import RegardError
from regard.files import sha256
from regard.tasks import load
from regard.tasks.run import RunResult
from regard.tasks.translate.predictor import Translator
from regard.tensors import read_tensors


def alter(bundle: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the values of config.json in place."""
    values = json.loads((bundle / "config.json").read_text())
    change(values)
    (bundle / "config.json").write_text(json.dumps(values))
    return bundle


def sign(bundle: Path) -> Path:
    """Write the digests of the files as they are now, as somebody who tampers would."""
    return alter(
        bundle, lambda values: values["files"].update({name: sha256(bundle / name) for name in values["files"]})
    )


# -- sound -------------------------------------------------------------------------------------------------------------


def test_saved_and_loaded_bit_for_bit(tiny_run: RunResult, tmp_path: Path) -> None:
    bundle = load_bundle(tiny_run.best)
    again = load_bundle(save_bundle(tmp_path / "again", bundle))
    assert again.metrics == bundle.metrics and again.config == bundle.config
    for name, tensor in bundle.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    names = sorted(path.name for path in tiny_run.best.iterdir())
    assert names == ["README.md", "config.json", "metrics.json", "model.safetensors", "tokenizer.json"]
    for name in names:
        assert (tiny_run.best / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert not again.model.training


def test_tied_tables_are_saved_once_and_tied_again(tiny_run: RunResult) -> None:
    model: Any = load_bundle(tiny_run.best).model
    assert model.source.table.weight is model.target.table.weight is model.output.weight
    assert "output.weight" not in load_file(tiny_run.best / "model.safetensors")


def test_a_run_and_its_bundle_load_alike_and_translate(tiny_run: RunResult) -> None:
    texts = ["mardi 3 mars 1998", "March 3rd, 1998"]
    first, second = (load(place).translate(texts, max_length=9) for place in (tiny_run.folder, tiny_run.best))
    assert [each.text for each in first] == [each.text for each in second]


def test_the_card_says_what_it_is(tiny_run: RunResult) -> None:
    card = (tiny_run.best / "README.md").read_text()
    size = sum(parameter.numel() for parameter in load_bundle(tiny_run.best).model.parameters())
    assert f"{size:,} parameters" in card and "| bleu |" in card and "regard translate -m ." in card


def test_a_bundle_moves_anywhere(tiny_bundle: Path) -> None:
    moved = tiny_bundle.rename(tiny_bundle.with_name("ein Modell 日本"))
    assert load_bundle(moved).config.task == "translate"


def test_a_bundle_of_which_only_the_old_folder_is_left(tiny_bundle: Path) -> None:
    tiny_bundle.rename(tiny_bundle.with_name("bundle.old"))
    assert load_bundle(tiny_bundle).config.format == 1


def test_the_names_of_the_first_format(tiny_bundle: Path) -> None:
    """Every tensor of a Transformer as format 1 has always named it, spelled out: old bundles load."""
    layers = {"attention": ("query", "key_value", "out"), "cross": ("query", "key_value", "out")}
    layers["feed_forward"] = ("up", "down")
    names = {"source.table.weight"}
    names |= {f"{side}_norm.{kind}" for side in ("encoder", "decoder") for kind in ("weight", "bias")}
    for side, parts in (("encoder", ("attention", "feed_forward")), ("decoder", tuple(layers))):
        for stem in (f"{side}.{number}" for number in range(2)):
            inside = [f"{part}.{layer}" for part in parts for layer in layers[part]]
            inside += [f"around_{part}.norm" for part in parts]
            names |= {f"{stem}.{layer}.{kind}" for layer in inside for kind in ("weight", "bias")}
    old = load_file(tiny_bundle / "model.safetensors")
    written = {name: old[name] + 0.5 for name in names}
    save_file(written, tiny_bundle / "model.safetensors")
    loaded = load_bundle(sign(tiny_bundle)).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in written.items())


def test_metrics_are_not_needed_to_run(tiny_bundle: Path) -> None:
    (tiny_bundle / "metrics.json").unlink()
    (tiny_bundle / "README.md").unlink()
    assert load_bundle(tiny_bundle).metrics == {}


def test_a_bundle_can_be_read_where_nothing_can_be_written(tiny_bundle: Path) -> None:
    os.chmod(tiny_bundle, 0o555)
    try:
        assert load_bundle(tiny_bundle).config.format == 1
    finally:
        os.chmod(tiny_bundle, 0o755)


# -- not whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights(tiny_bundle: Path, share: float) -> None:
    file = tiny_bundle / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(RegardError, match=r"model\.safetensors is not a whole safetensors file .*; copy it again"):
        load_bundle(tiny_bundle)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("place", [0.3, -2])
def test_one_bit_that_flipped(tiny_bundle: Path, name: str, place: float) -> None:
    data = bytearray((tiny_bundle / name).read_bytes())
    data[int(place * len(data)) if place > 0 else int(place)] ^= 1
    (tiny_bundle / name).write_bytes(data)
    with pytest.raises(RegardError, match=rf"{name} is not the file this bundle was saved with \(SHA-256 differs\)"):
        load_bundle(tiny_bundle)


def test_an_altered_tokenizer(tiny_bundle: Path) -> None:
    file = tiny_bundle / "tokenizer.json"
    file.write_text(file.read_text().replace("Ġ1", "Ġ2", 1))
    with pytest.raises(RegardError, match=r"tokenizer\.json is not the file"):
        load_bundle(tiny_bundle)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_missing_file(tiny_bundle: Path, name: str) -> None:
    (tiny_bundle / name).unlink()
    with pytest.raises(RegardError, match=rf"has no {name}; the bundle is not whole, copy it again"):
        load_bundle(tiny_bundle)


def test_a_folder_in_the_place_of_a_file(tiny_bundle: Path) -> None:
    (tiny_bundle / "model.safetensors").unlink()
    (tiny_bundle / "model.safetensors").mkdir()
    with pytest.raises(RegardError, match=r"has no model\.safetensors"):
        load_bundle(tiny_bundle)


def test_a_truncated_configuration(tiny_bundle: Path) -> None:
    file = tiny_bundle / "config.json"
    file.write_text(file.read_text()[:100])
    with pytest.raises(RegardError, match=r"config\.json is not whole JSON"):
        load_bundle(tiny_bundle)


def test_no_configuration(tiny_bundle: Path, tmp_path: Path) -> None:
    (tiny_bundle / "config.json").unlink()
    for place in (tiny_bundle, tmp_path / "none"):
        with pytest.raises(RegardError, match=r"is not a bundle: it has no config\.json"):
            load_bundle(place)


@pytest.mark.parametrize("content", ["[]", "3", '{"model_type": "marian"}', '{"format": "1"}'])
def test_somebody_elses_configuration(tiny_bundle: Path, content: str) -> None:
    (tiny_bundle / "config.json").write_text(content)
    with pytest.raises(RegardError, match="names no format; it is not a Regard bundle"):
        load_bundle(tiny_bundle)


# -- tampered ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", ".", "", "a/../../b", "sub/file"])
def test_a_name_that_leads_out_of_the_bundle(tiny_bundle: Path, name: str) -> None:
    (tiny_bundle.parent / "secret").write_text("x")
    alter(tiny_bundle, lambda values: values["files"].update({name: "0" * 64}))
    with pytest.raises(RegardError, match="names a file outside the bundle"):
        load_bundle(tiny_bundle)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_file_that_nobody_vouches_for(tiny_bundle: Path, name: str) -> None:
    """The bug: with its digest gone from config.json, an altered file was loaded unseen."""
    alter(tiny_bundle, lambda values: values["files"].pop(name))
    with pytest.raises(RegardError, match=rf"has no SHA-256 of {name}; the bundle was altered"):
        load_bundle(tiny_bundle)


def test_a_tokenizer_slipped_in(tiny_bundle: Path) -> None:
    """A joint bundle has tokenizer.json; a second file would have been read in its place."""
    shutil.copy(tiny_bundle / "tokenizer.json", tiny_bundle / "tokenizer.source.json")
    with pytest.raises(RegardError, match=r"has no SHA-256 of tokenizer\.source\.json"):
        load_bundle(tiny_bundle)


def test_a_pickle_with_another_name(tiny_bundle: Path) -> None:
    file = tiny_bundle / "model.safetensors"
    torch.save(read_tensors(file), file)
    for bundle in (tiny_bundle, sign(tiny_bundle)):
        with pytest.raises(RegardError, match="is a pickle, whatever its name says"):
            load_bundle(bundle)


def test_weights_that_do_not_fit(tiny_bundle: Path) -> None:
    file = tiny_bundle / "model.safetensors"
    tensors = read_tensors(file)
    first, *_ = tensors
    save_file({name: tensor for name, tensor in tensors.items() if name != first} | {"more": torch.ones(2)}, file)
    with pytest.raises(RegardError, match=rf"does not fit .*: 1 missing \['{first}'\], 1 unknown \['more'\]"):
        load_bundle(sign(tiny_bundle))
    save_file(tensors | {first: tensors[first][:-1].clone()}, file)
    with pytest.raises(RegardError, match=rf"{first} is \(.* in the file, \(.* in config\.json"):
        load_bundle(sign(tiny_bundle))


def test_a_configuration_that_does_not_fit(tiny_bundle: Path) -> None:
    alter(tiny_bundle, lambda values: values["model"].update(width=48))
    with pytest.raises(RegardError, match=r"in the file, \(.*48.* in config\.json"):
        load_bundle(tiny_bundle)


def test_a_tokenizer_that_does_not_fit(tiny_bundle: Path) -> None:
    alter(tiny_bundle, lambda values: values.update(vocabulary=[299, 299]))
    with pytest.raises(RegardError, match=r"the tokenizers have \(300, 300\) tokens, config\.json says \(299, 299\)"):
        load_bundle(tiny_bundle)


# -- of another make ---------------------------------------------------------------------------------------------------


def test_a_newer_format(tiny_bundle: Path) -> None:
    alter(tiny_bundle, lambda values: values.update(format=2, regard="7.0", brand_new={"x": 1}))
    with pytest.raises(
        RegardError, match=r"has format 2 \(written by Regard 7\.0\); .* reads up to 1: upgrade it with pip"
    ):
        load_bundle(tiny_bundle)


def test_an_unknown_key(tiny_bundle: Path) -> None:
    alter(tiny_bundle, lambda values: values["model"].update(haeds=4))
    with pytest.raises(RegardError, match=r"config\.json: no key model\.haeds; did you mean heads\?"):
        load_bundle(tiny_bundle)


def test_a_value_of_the_wrong_kind(tiny_bundle: Path) -> None:
    alter(tiny_bundle, lambda values: values["model"].update(heads="many"))
    with pytest.raises(RegardError, match=r"config\.json: model\.heads: must be a whole number"):
        load_bundle(tiny_bundle)


def test_models_and_results_print_themselves_in_a_line(tiny_run: RunResult) -> None:
    """The bug: a translation with its attention printed 43 kB, and a model nothing but its address."""
    model = tiny_run.load()
    size = sum(parameter.numel() for parameter in model.bundle.model.parameters())
    assert repr(model) == f"Translator(transformer, {size / 1000:.0f}k)"
    languages = replace(model.bundle, config=model.bundle.config.model_copy(update={"languages": ("en", "de")}))
    assert repr(Translator(languages)) == f"Translator(transformer, en-de, {size / 1000:.0f}k)"
    out = model.translate("5 May 2011", attention=True)
    text = out.text if len(out.text) <= 48 else out.text[:46].rstrip() + " …"
    assert repr(out) == f"Translation({text!r}, score={out.score:.3g})"
    walked = regard.walk(model, "5 May 2011")
    seen = [out.attention, out.attention.map(), out.attention.grid(), walked, model.bundle, tiny_run]
    assert all(len(repr(each)) < 200 and repr(each).startswith(type(each).__name__ + "(") for each in seen)
    assert quoted("one two three", 9) == "'one two …'"
    assert [in_short(count) for count in (870, 12_345, 2_605_568, 1_100_000_000)] == ["870", "12k", "2.6M", "1.1B"]
