"""The kernels in C against plain arithmetic, and what becomes of a decoder where they cannot be made."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes import byref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.decode.choice import log_norm
from regard.doctor import checkup
from regard.models.config import TransformerConfig
from regard.models.fast.native import Panels
from regard.models.fast.stepper import LaidOut
from regard.models.fast.translation import FastDecoder
from regard.models.transformer import Transformer
from regard.native import compiled
from regard.native.logits import Digest, digest_of, kernels_for, made_digest, with_digest

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
needs_compiler = pytest.mark.skipif(compiled.kernels("float") is None, reason=compiled.status())


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# --- Products


@needs_compiler
@BOTH
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 331])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 7), (17, 64), (128, 131), (700, 29)])
def test_products_in_panels_are_those_of_torch(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> None:
    x, bias = drawn(rows, inputs, dtype=dtype), drawn(outputs, dtype=dtype)
    weight = drawn(outputs, inputs, dtype=dtype, seed=2) / inputs**0.5
    library = kernels_for(x)
    assert library is not None
    near = 1e-12 if dtype == torch.float64 else 2e-5
    for each in (None, bias):
        expected = nn.functional.linear(x.double(), weight.double(), None if each is None else each.double())
        found = Panels(library, weight, each)(x)
        assert torch.allclose(found.double(), expected, rtol=0, atol=near)


@needs_compiler
def test_a_row_gives_the_same_bits_whatever_stands_beside_it() -> None:
    x, weight = drawn(23, 37), drawn(101, 37, seed=2)
    library = kernels_for(x)
    assert library is not None
    product = Panels(library, weight, None)
    whole = product(x)
    for row in range(23):
        assert torch.equal(product(x[row : row + 1])[0], whole[row])
    assert torch.equal(product(x[3:8]), whole[3:8])


# --- Logits


@needs_compiler
@BOTH
@pytest.mark.parametrize("count", [5, 64, 131, 1000])
def test_norms_come_along_with_logits_as_they_do_afterwards(dtype: torch.dtype, count: int) -> None:
    x, weight = drawn(11, 19, dtype=dtype), drawn(count, 19, dtype=dtype, seed=2)
    library = kernels_for(x)
    assert library is not None
    product, logits = Panels(library, weight, None), x.new_empty(11, count)
    along, after = Digest(library, logits), Digest(library, logits)
    along.write(byref(product.fields), x, True)
    assert torch.equal(logits, product(x))
    after.read(True)
    assert along.norms.tolist() == after.norms.tolist() and torch.equal(along.bounds, after.bounds)
    expected = logits.double().logsumexp(dim=-1)
    np.testing.assert_allclose(along.norms, expected.numpy(), rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-6)


@needs_compiler
@BOTH
def test_exponentials_are_as_exact_as_their_numbers(dtype: torch.dtype) -> None:
    """Of one logit the norm is the logit itself, also where its exponential overflows or vanishes."""
    logits = torch.cat([torch.linspace(-300, 300, 1201), torch.linspace(-2, 2, 401)]).to(dtype)[:, None]
    near = 1e-12 if dtype == torch.float64 else 2.5e-7
    np.testing.assert_allclose(log_norm(logits), logits[:, 0].double().numpy(), rtol=near, atol=near)


@needs_compiler
@BOTH
def test_what_is_no_number_stays_visible(dtype: torch.dtype) -> None:
    logits = drawn(7, 201, dtype=dtype)
    logits[1, 130], logits[2, 200], logits[3], logits[4, 5], logits[5, 7] = (
        math.nan,
        math.inf,
        -math.inf,
        -math.inf,
        math.nan,
    )
    logits[5, 100] = 50.0
    norms = log_norm(logits)
    assert np.isnan(norms).tolist() == [False, True, True, False, False, True, False]
    assert norms[3] == -math.inf
    digest = made_digest(logits, False)
    assert digest is not None and digest.greatest() is None  # whoever asks looks himself
    assert digest.bounds[1].max() == math.inf


@needs_compiler
@BOTH
@pytest.mark.parametrize("forbidden", [0, 1, 150])
@pytest.mark.parametrize("k", [1, 2, 11])
def test_the_best_are_the_head_of_a_sorted_list_whatever_was_forbidden(
    k: int, forbidden: int, dtype: torch.dtype
) -> None:
    """Also the greatest, of which bounds still know; of equals the first; where there are fewer, nothing."""
    logits = drawn(15, 173, dtype=dtype).mul_(4).round_()  # many equals
    digest = made_digest(logits, True)
    assert digest is not None
    greatest = logits.amax(dim=0).argsort(descending=True)[:forbidden]
    logits[:, greatest] = -math.inf
    logits[3:6, 4:] = -math.inf
    offsets = drawn(5, 3, dtype=torch.float64, seed=3).round().numpy()
    offsets[2, 1:] = -math.inf
    values, places = digest.best(offsets, k)
    for source in range(5):
        flat = (logits.view(5, 3, 173)[source].double() + torch.from_numpy(offsets)[source][:, None]).flatten().tolist()
        order = sorted(
            (place for place in range(len(flat)) if flat[place] > -math.inf), key=lambda place: -flat[place]
        )[:k]
        assert values[source].tolist() == [flat[place] for place in order] + [-math.inf] * (k - len(order))
        assert places[source, : len(order)].tolist() == order
    alone = digest.greatest()
    assert alone is not None
    assert alone.tolist() == logits.numpy().argmax(axis=1).tolist()


@needs_compiler
def test_a_digest_is_only_of_the_logits_that_it_came_with() -> None:
    logits = drawn(3, 70)
    assert digest_of(logits) is None
    assert made_digest(logits, False) is not made_digest(logits, False)
    digest = made_digest(logits, False)
    assert digest is not None
    assert digest_of(with_digest(logits, digest)) is digest
    assert digest_of(logits / 2) is None and digest_of(logits.clone()) is None


# --- In float32, where compilers choose other instructions than in float64


@needs_compiler
@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 2, 5, 8])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "activation": "gelu", "width": 66, "heads": 6},
        {"positions": "rotary", "width": 48, "heads": 3},
        {"positions": "learned", "width": 64, "heads": 2, "feed_forward": 131},
        {"width": 128, "heads": 2},
    ],
    ids=str,
)
def test_in_float32_steps_are_those_of_torch(
    changes: dict[str, object], beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(4)
    config = {"width": 32, "heads": 2, "feed_forward": 70, "tied": "none", "encoder_layers": 2, "decoder_layers": 2}
    model = Transformer(TransformerConfig(**{**config, **changes}), 53, 211).eval()  # type: ignore[arg-type]
    both = []
    for way in ("1", "0"):
        monkeypatch.setenv("REGARD_NATIVE", way)
        both.append(FastDecoder.of(model))
    assert both[0] is not None and both[0].native is not None and both[1] is not None and both[1].native is None
    lengths = torch.tensor([9, 1, 4])
    source = (torch.randint(3, 53, (3, 9)).masked_fill(torch.arange(9) >= lengths[:, None], 0), lengths)
    begun = [stepper.start(source, torch.ones(3, 1, dtype=torch.long)) for stepper in both]  # type: ignore[union-attr]
    parents = torch.zeros(3, beam, dtype=torch.long)
    for _ in range(19):
        logits, states = zip(*begun, strict=True)
        assert torch.allclose(*logits, rtol=0, atol=5e-5) and logits[0].std() > 0.1
        ids = torch.randint(211, (3, beam))
        begun = [s.step(ids, s.reorder(state, parents)) for s, state in zip(both, states, strict=True)]  # type: ignore[union-attr]
        parents = torch.randint(beam, (3, beam))


# --- Where there are none


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Kernels that nobody has asked for yet, and an empty cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_found", {})
    yield tmp_path


def programs(folder: Path, name: str, text: str) -> str:
    """A folder of programs with this one."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return str(folder)


def small_decoder() -> FastDecoder:
    model = Transformer(TransformerConfig(width=12, heads=3, feed_forward=7, tied="none"), 19, 31).eval()
    found = LaidOut(model, FastDecoder.of).stepper()
    assert isinstance(found, FastDecoder)
    return found


def test_without_a_compiler_nothing_is_missed_but_speed(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fresh))
    assert small_decoder().native is None
    assert compiled.status() == "none (there is no C compiler): decoding goes through torch"
    assert ("decoding", compiled.status()) in {(fact.name, fact.value) for fact in checkup(0.01).facts}


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_a_compiler_that_fails_is_told_of_and_leaves_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "#!/bin/sh\necho 'cc: error: no space left' >&2\nexit 3\n"
    monkeypatch.setenv("PATH", programs(fresh / "bin", "cc", script))
    assert small_decoder().native is None
    assert "the compiler failed: cc: error: no space left" in compiled.status()
    assert list((fresh / "cache" / "native").iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_a_compiler_that_writes_nonsense_is_told_of(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho nonsense > "$2"\n'
    monkeypatch.setenv("PATH", programs(fresh / "bin", "cc", script))
    assert small_decoder().native is None
    assert compiled.status().startswith("none (")


def test_a_cache_that_cannot_be_written_is_told_of(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "cache").write_text("a file, where a folder should be")
    monkeypatch.setattr(compiled, "compiler", lambda: sys.executable)
    assert small_decoder().native is None
    assert "cache" in compiled.status()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners here")
def test_nothing_is_loaded_from_a_folder_that_others_can_write(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "compiler", lambda: sys.executable)
    folder = fresh / "cache" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert small_decoder().native is None
    assert "can be written by others" in compiled.status()


def test_the_switch_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SWITCH, "0")
    assert small_decoder().native is None
    assert compiled.status().startswith("off (REGARD_NATIVE=0)")


@needs_compiler
def test_they_are_compiled_once_for_all_and_whole_if_two_do_it_at_once(fresh: Path) -> None:
    program = "from regard.native.compiled import kernels\nassert kernels('float') is not None"
    both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [each.wait(timeout=300) for each in both] == [0, 0]
    (made,) = (fresh / "cache" / "native").iterdir()  # and nothing half-written
    before = made.stat().st_mtime_ns
    assert compiled.kernels("float") is not None and made.stat().st_mtime_ns == before
    assert made.parent.stat().st_mode & 0o077 == 0


@needs_compiler
def test_a_damaged_file_in_the_cache_is_made_anew(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.kernels("float") is not None
    (made,) = (fresh / "cache" / "native").iterdir()
    made.unlink()
    made.write_bytes(b"half of it")
    monkeypatch.setattr(compiled, "_found", {})
    assert compiled.kernels("float") is not None
