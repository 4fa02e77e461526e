"""`regard bench`: what is measured is what is said, growth and crossovers are those of known curves, patterns are drawn."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.attention import Causal, attend_reference
from regard.attention.kernels import KERNELS, Placement
from regard.bench import attention as bench
from regard.bench import scout as bench_child
from regard.bench.attention import AttentionBench, KernelCosts, Point, exponent, pays_from
from regard.bench.scout import (
    BenchInputs,
    BenchSubject,
    Scouted,
    Sizes,
    config_of,
    make_subject,
    peak_memory,
    predicted,
    scout,
)
from regard.cli import main
from regard.cli.bench import print_bench, read_quality
from regard.errors import RegardError, UsageError
from regard.look.comparison import Costs
from regard.look.figures.costs import draw_growth, draw_patterns
from regard.look.patterns import Pattern, patterns
from regard.models.configs.attention import KERNEL_KINDS

SMALL = Sizes(width=24, heads=3, batch=2)
Captured = pytest.CaptureFixture[str]


def power_law(
    factor: float, power: float, lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192)
) -> dict[int, float]:
    return {length: factor * length**power for length in lengths}


# --- Growth


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7, 2.0])
def test_the_exponent_of_a_power_law_is_its_power(power: float) -> None:
    assert exponent(power_law(3e-5, power)) == pytest.approx(power)


def test_what_is_short_does_not_count_and_one_length_says_nothing() -> None:
    assert exponent({128: 99.0, 512: 99.0, 1024: 1.0, 2048: 2.0}) == pytest.approx(1.0)
    assert exponent({512: 1.0, 1024: 2.0}) is None and exponent({}) is None


def test_a_line_crosses_a_parabola_where_they_are_equal() -> None:
    """5e-5 T = 2e-8 T² at T = 2,500, between two lengths; both are straight on log-log paper."""
    assert pays_from(power_law(5e-5, 1), power_law(2e-8, 2)) == pytest.approx(2500)


def test_a_kernel_pays_never_or_throughout() -> None:
    exact = power_law(1e-6, 2)
    assert pays_from(power_law(2e-6, 2), exact) is None
    assert pays_from(power_law(5e-7, 2), exact) == 512
    assert pays_from({}, exact) is None


def test_of_two_crossings_the_last_counts_and_only_common_lengths() -> None:
    exact = {128: 1.0, 256: 2.0, 512: 4.0, 1024: 8.0}
    assert pays_from({128: 0.5, 256: 3.0, 512: 3.0, 1024: 3.0, 2048: 9.0}, exact) == pytest.approx(
        256 * 2 ** (math.log(1.5) / math.log(2)), rel=1e-9
    )  # gains are -log 1.5 at 256 and log(4/3) at 512: equal at a share of log 1.5 / log 2
    assert pays_from({128: 0.5, 2048: 0.5}, exact) == 128


def test_predictions_go_on_as_the_last_two_but_at_most_with_the_square() -> None:
    assert predicted([], 256) == 0.0
    assert predicted([(128, 3.0)], 256) == pytest.approx(12.0)
    assert predicted([(64, 3.0), (128, 6.0)], 512) == pytest.approx(24.0)
    assert predicted([(64, 1.0), (128, 99.0)], 256) == pytest.approx(396.0)
    assert predicted([(64, 5.0), (128, 4.0)], 256) == pytest.approx(8.0)


# --- What is measured


def test_exact_and_naive_compute_the_same_there_and_back() -> None:
    for causal in (False, True):
        sizes = Sizes(24, 3, 2, causal)
        inputs, gradients = BenchInputs.of(sizes, 37), []
        for name in ("exact", "naive"):
            out = make_subject(name, sizes, 37).run(inputs)
            gradients.append(torch.autograd.grad(out, inputs.vectors, inputs.in_heads(inputs.gradient)))
        q, k, v = map(inputs.in_heads, inputs.vectors)
        assert q.shape == (2, 3, 37, 8)
        torch.testing.assert_close(out, attend_reference(q, k, v, mask=Causal() if causal else None))
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "causal"), list(product(KERNEL_KINDS, (False, True))))
def test_every_kind_runs_and_leaves_no_gradients_behind(name: str, causal: bool) -> None:
    sizes = Sizes(24, 3, 2, causal)
    if name in KERNELS and not (KERNELS[name].supports.causal if causal else KERNELS[name].supports.both_sides):
        with pytest.raises(UsageError, match="cannot"):
            make_subject(name, sizes, 37)
        return
    subject, inputs = make_subject(name, sizes, 37), BenchInputs.of(sizes, 37)
    learned: list[Any] = [] if subject.module is None else list(subject.module.parameters())
    seen: list[bool] = []
    inputs.vectors[0].register_post_accumulate_grad_hook(lambda leaf: seen.append(bool(leaf.grad.abs().sum() > 0)))
    subject.there_and_back(inputs)
    subject.forward(inputs)
    assert seen == [True]
    assert all(leaf.grad is None for leaf in (*inputs.vectors, *learned))
    assert subject.module is None or not subject.module.training


@pytest.mark.parametrize(("name", "shared"), [("reformer", True), ("window", False)])
def test_a_kernel_that_shares_keys_is_given_its_queries(name: str, shared: bool) -> None:
    subject, inputs = make_subject(name, SMALL, 37), BenchInputs.of(SMALL, 37)
    given: list[tuple[Any, ...]] = []
    assert subject.module is not None
    subject.module.register_forward_pre_hook(lambda module, args: given.append(args))
    subject.run(inputs)
    starts = [each.data_ptr() for each in given[0]]
    wanted = [inputs.vectors[place].data_ptr() for place in (0, 0 if shared else 1, 2)]
    assert starts == wanted and [each.shape for each in given[0]] == [(2, 3, 37, 8)] * 3


def test_strides_grow_with_the_root_and_settings_are_the_persons() -> None:
    assert config_of("strided", SMALL, 4096).stride == 64  # type: ignore[union-attr]
    chosen = Sizes(settings={"strided": {"stride": 5}, "window": {"reach": 3}})
    assert config_of("strided", chosen, 4096).stride == 5  # type: ignore[union-attr]
    assert config_of("window", chosen, 4096).reach == 3  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="did you mean reach"):
        config_of("window", Sizes(settings={"window": {"reech": 3}}), 128)


# --- Memory


def test_storages_that_live_at_once_are_counted() -> None:
    def work() -> None:
        first = torch.zeros(1000, 250)  # 1,000,000 bytes
        second = first + 1
        del first
        third = second * 2
        second[0].add_(third[1])  # a view and a change in place take nothing

    assert peak_memory(work, "storages") == (2_000_000, "storages")


def test_counted_memory_of_naive_attention_is_that_of_its_scores() -> None:
    """Scores and weights of 3 heads at once; exact attention never has a matrix of T x T, which are many more."""
    lengths = [384, 768]
    naive = {each.length: each for each in scout("naive", SMALL, lengths, math.inf, "storages")}
    exact = {each.length: each for each in scout("exact", SMALL, lengths, math.inf, "storages")}
    for length in lengths:
        matrix, vectors = 4 * 2 * 3 * length**2, 4 * 2 * length * 24
        assert 2 * matrix <= naive[length].memory <= 4 * matrix
        assert exact[length].memory < 6 * vectors
        assert naive[length].inputs == 4 * vectors


def test_a_length_that_takes_too_long_or_too_much_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = scout("exact", SMALL, [64, 32, 128], limit=0.0, how="storages")
    assert (first.length, first.skipped, second.length) == (32, "", 64)
    assert "more than the limit of 0 s" in second.skipped
    monkeypatch.setattr(bench_child, "memory_of_machine", lambda: 1000.0)
    _, second = scout("exact", SMALL, [32, 64, 128], limit=math.inf, how="storages")
    assert "of memory" in second.skipped


def test_the_system_sees_the_square_of_naive_attention_and_that_exact_has_none() -> None:
    """In children, as it is measured: what is resident, where the system tells it."""
    sizes, notes = Sizes(width=32, heads=4), list[str]()

    def memory(name: str, lengths: list[int]) -> dict[int, float]:
        found = bench._scouted(name, sizes, lengths, 60.0, 1, "", notes, lambda *each: None)
        assert {each.how for each in found} <= {"resident", "storages"}
        return {each.length: float(each.memory) for each in found}

    naive, exact = memory("naive", [256, 512, 1024]), memory("exact", [1024, 2048, 4096])
    matrix, vectors = 4 * 4 * 1024**2, 4 * 4096 * 32
    assert exponent(naive, first=256) == pytest.approx(2.0, abs=0.15)
    assert 2 * matrix < naive[1024] < 4 * matrix
    grown = exponent(exact)  # below 1: what torch takes at any length is a part of it
    assert grown is not None and grown < 1.2 and 3 * vectors < exact[4096] < 9 * vectors
    assert not notes


# --- Rounds


def test_kinds_take_turns_at_each_length_and_the_first_turn_is_for_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    def note(
        subject: BenchSubject, inputs: BenchInputs, backward: bool, forward: list[float], both: list[float]
    ) -> None:
        order.append((subject.name, inputs.vectors[0].size(1)))
        forward.append(float(len(order)))

    monkeypatch.setattr(bench, "_time_once", note)
    scouted = {"exact": [Scouted(16, 1.0), Scouted(32, 2.0)], "window": [Scouted(16, 3.0)]}
    told: list[tuple[str, float, float]] = []
    times = bench._time_all(scouted, SMALL, 2, lambda *each: told.append(each))
    assert order == [("exact", 16), ("window", 16)] * 3 + [("exact", 32)] * 3
    assert times["window", 16] == ([4.0, 6.0], []) and times["exact", 32] == ([8.0, 9.0], [])
    assert told[-1] == ("time at 32", 18.0, 18.0) and told[0] == ("time at 16", 1.0, 18.0)


def test_who_cannot_is_left_out_with_a_sentence() -> None:
    notes: list[str] = []
    able = bench._able(["exact", "linformer", "window"], Sizes(24, 3, causal=True), [128], notes)
    assert able == ["exact", "window"]
    assert len(notes) == 1 and notes[0].startswith("linformer is left out: linformer attention cannot be causal")
    with pytest.raises(UsageError, match="nothing is left to measure: linformer"):
        bench._able(["linformer"], Sizes(24, 3, causal=True), [128], [])


def test_a_child_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.sys, "executable", "/bin/false")
    with pytest.raises(RegardError, match="measuring exact failed"):
        bench.bench_attention(["exact"], [16], SMALL, rounds=1)


# --- The figure


def test_the_figure_has_a_line_for_each_kind_and_a_ring_for_each_crossing() -> None:
    exact, kernel = power_law(2e-8, 2), power_law(5e-5, 1)
    kinds = [
        Costs("exact", exact, power_law(900.0, 1)),
        Costs("window", kernel, power_law(1800.0, 1), 2500.0),
        Costs("linear", power_law(1e-9, 1), power_law(1800.0, 1), 512.0),
    ]
    figure = draw_growth(kinds, "forward")
    time, memory = figure.axes
    rings = [line for line in time.lines if line.get_markersize() == 11]
    assert len(rings) == 1 and rings[0].get_xdata()[0] == 2500.0
    assert rings[0].get_ydata()[0] == pytest.approx(1e3 * 2e-8 * 2500**2)
    drawn = {line.get_label(): line for line in time.lines}
    assert list(drawn["window, pays from 2,500"].get_ydata()) == pytest.approx([1e3 * cost for cost in kernel.values()])
    assert "linear, pays throughout" in drawn and "exact" in drawn
    assert list(memory.lines[0].get_ydata()) == pytest.approx([900 * length / 2**20 for length in exact])
    with pytest.raises(RegardError, match="nothing was measured"):
        draw_growth([Costs("exact", {}, {})])
    draw_growth([Costs("exact", {128: 1.0}, {128: 0.0})])  # a single point, and memory too little to see


# --- Patterns


def by_name(found: list[Pattern]) -> dict[tuple[str, bool], Pattern]:
    return {(each.name, each.causal): each for each in found}


def test_patterns_are_those_of_the_papers_at_a_length_that_nothing_divides() -> None:
    length = 37  # √37 ≈ 6, 37 // 16 = 2
    found = by_name(patterns(length))
    for causal in (False, True):
        for i, j in product(range(length), repeat=2):
            seen = {
                "window": abs(i - j) <= 3 or (not causal and min(i, j) < 2),
                "strided": abs(i - j) < 6 or (i - j) % 6 == 0,
                "fixed": i // 6 == j // 6 or j % 6 >= 5,
            }
            for name, one in seen.items():
                pairs = found[name, causal].pairs
                assert pairs is not None and pairs[i, j] == (one and not (causal and j > i)), (name, causal, i, j)
    window = found["window", True]
    assert window.share == pytest.approx(sum(min(i, 3) + 1 for i in range(length)) / (length * (length + 1) / 2))


def test_bigbird_sees_its_neighbours_the_first_and_some_more() -> None:
    pattern = by_name(patterns(64))["bigbird", False]
    assert pattern.pairs is not None
    blocks = pattern.pairs.reshape(16, 4, 16, 4)
    assert (blocks == blocks[:, :1, :, :1]).all()
    seen = blocks[:, 0, :, 0]
    number = np.arange(16)
    must = (np.abs(number[:, None] - number) <= 1) | (number[:, None] == 0) | (number == 0)
    assert (seen | ~must).all() and ((seen & ~must)[1:].sum(axis=1) == 2).all()


def test_masked_cells_have_no_colour_and_refusals_are_words() -> None:
    found = patterns(20)
    figure = draw_patterns(found)
    refused = by_name(found)["bigbird", True]
    assert refused.pairs is None and "cannot be causal" in refused.settings and "share" not in refused.data()
    for axes, each in zip(figure.axes, found, strict=True):
        if each.pairs is None:
            assert "cannot" in axes.texts[0].get_text()
            continue
        colors = np.asarray(axes.images[0].get_array())
        assert (colors[..., 3] == (np.tri(20) if each.causal else 1)).all()
        assert (colors[each.pairs] == colors[0, 0]).all() and len(np.unique(colors[~each.pairs][..., :3], axis=0)) <= 2
        assert f"{each.share:.1%} of pairs" in axes.get_xlabel()
    with pytest.raises(UsageError, match="two positions"):
        patterns(1)


# --- As a person types it


def typed(capsys: Captured, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main.run(["bench", *words])
    return code, *capsys.readouterr()


def test_bench_attention_prints_draws_and_writes(capsys: Captured, tmp_path: Path) -> None:
    row = {"task": "copy", "kernel": "window", "loss": 0.25, "accuracy": 0.9, "seconds": 321.4, "steps": 4000}
    (tmp_path / "quality.json").write_text(json.dumps([row]))
    words = ["--kernels", "window,linformer", "--lengths", "256,64", "--width", "32", "--heads", "2", "--causal"]
    files = ["-o", str(tmp_path / "growth.png")]
    more = ["--rounds", "2", "--threads", "1", "--set", "window.reach=5", "--quality", str(tmp_path / "quality.json")]
    code, out, err = typed(capsys, "attention", *words, *files, *more)
    assert code == 0, err
    assert "linformer is left out" in out and "window: reach 5, globals 0" in out
    assert "causal, forward and backward, width 32, 2 heads, batch 1, 1 thread, median of 2 rounds" in out
    assert "copy" in out and "0.900" in out and "4,000" in out
    assert f"wrote {tmp_path / 'growth.png'}" in err
    assert "measuring window, linformer at 2 lengths up to 256" in err  # what it does, also where nobody sees a bar,
    assert "memory of window" in err and "time at 64, about 0 s left" in err and "20 s (--limit)" in err  # and how long
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    files, more = ["-o", str(tmp_path / "all.json"), "--json"], more[:-2]
    code, out, _ = typed(capsys, "attention", "--kernels", "window", *words[2:], *files, *more)
    data = json.loads(out)  # a flag, as everywhere: all of stdout is JSON
    assert code == 0 and data == json.loads((tmp_path / "all.json").read_text())
    assert [kernel["name"] for kernel in data["kernels"]] == ["window"]
    assert [point["length"] for point in data["kernels"][0]["points"]] == [64, 256]
    assert all(len(point["both"]) == 2 for kernel in data["kernels"] for point in kernel["points"])
    assert (
        data["causal"] is True and data["conditions"]["threads"] == 1 and data["settings"] == {"window": {"reach": 5}}
    )


def test_the_table_says_where_a_kernel_pays(capsys: Captured) -> None:
    def line(name: str, seconds: dict[int, float], bytes_: float) -> KernelCosts:
        points = [Point(length, round(bytes_ * length), 0, (cost / 4,), (cost,)) for length, cost in seconds.items()]
        return KernelCosts(name, {}, tuple(points))

    lines = (
        line("exact", power_law(2e-8, 2), 2048.0),
        line("linear", power_law(5e-5, 1), 4096.0),
        line("s4d", power_law(9e-3, 1), 4096.0),
        line("window", power_law(1e-9, 1), 4096.0),
    )
    found = AttentionBench(SMALL, 1, lines, "resident", {"threads": 2}, ("a note",))
    print_bench(found)
    out = capsys.readouterr().out
    rows = {words[0]: words[1:] for words in map(str.split, out.splitlines()) if words}
    assert rows["exact"] == ["5.24", "83.9", "1,342", "T^2.00", "336", "16.0", "T^1.00"]
    assert rows["linear"][3:5] == ["T^1.00", "2,500"] and rows["window"][4:6] == ["≤", "512"]
    assert "s4d does not pay up to 8,192" in out and "a note" in out
    assert [kind.pays_from for kind in found.costs()] == [None, pytest.approx(2500), None, 512.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention", "--kernels", "windo"], "did you mean window?"),
        (["attention", "--lengths", "128,x"], "write whole numbers"),
        (["attention", "--lengths", "0"], "write whole numbers"),
        (["attention", "--width", "10", "--heads", "3"], "cannot be split into 3 heads"),
        (["attention", "-o", "a.gif"], "use .png, .svg, .json"),
        (["attention", "--kernels", "exact", "--set", "window.reach=3"], "not among what is measured"),
        (["attention", "--kernels", "window", "--set", "window.reech=3"], "did you mean reach?"),
        (["patterns", "--length", "1"], "two positions"),
        (["patterns", "-o", "a.gif"], "use .png, .svg, .json"),
        (["patern"], "did you mean patterns?"),
    ],
)
def test_bench_refuses(capsys: Captured, words: list[str], message: str) -> None:
    code, out, err = typed(capsys, *words)
    assert (code, out) == (2, "") and message in err


@pytest.mark.parametrize("value", [[{"loss": 1}], {"conditions": {"a": {"cores": 2}}}, [], 3])
def test_quality_must_be_rows(capsys: Captured, tmp_path: Path, value: Any) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(value))
    code, _, err = typed(capsys, "attention", "--quality", str(tmp_path / "bad.json"))
    assert code == 2 and "each with task and kernel" in err


def test_quality_may_be_tables_of_tables(tmp_path: Path) -> None:
    tables = {
        "conditions": {"versions": {"torch": "2"}},
        "listops": {"exact": {"loss": 1.5, "by": [1]}, "s4d": {"test": {"f1": 2}}},
    }
    (tmp_path / "long.json").write_text(json.dumps(tables))
    first, second = read_quality(tmp_path / "long.json")
    assert first == {"task": "listops", "kernel": "exact", "loss": 1.5} and second["test f1"] == 2


def test_bench_patterns_prints_and_draws(capsys: Captured, tmp_path: Path) -> None:
    code, out, _ = typed(capsys, "patterns", "--length", "16", "-o", str(tmp_path / "p.json"))
    assert code == 0 and "bigbird" in out and "reformer's pattern depends on the text" in out
    data = json.loads((tmp_path / "p.json").read_text())
    kernel: Any = KERNELS["window"](Placement(1, 8, longest=16), reach=2, globals=2)
    assert data[0]["pairs"] == kernel.pattern(16, 16).int().tolist()
    assert typed(capsys, "patterns", "--length", "16", "-o", str(tmp_path / "p.svg"))[0] == 0
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")


def test_trained_models_are_measured_over_the_same_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("the old king sees a small cat near the wide river. " * 60)
    train = ["train", "generate", "--data", str(tmp_path / "a.txt"), "-o", str(tmp_path / "run")]
    small = {"data.context": 16, "tokens.kind": "character", "model.layers": 1, "model.width": 8, "model.heads": 2}
    sets = [
        word
        for key, value in (small | {"train.steps": 2, "train.warmup": 1}).items()
        for word in ("--set", f"{key}={value}")
    ]
    assert main.run([*train, *sets]) == 0
    bench = ["bench", "attention", "--kernels", "exact", "--lengths", "32,64", "--rounds", "1", "--threads", "1"]
    assert main.run([*bench, "--run", str(tmp_path / "run"), "-o", str(tmp_path / "b.json")]) == 0
    (found,) = json.loads((tmp_path / "b.json").read_text())["trained"]
    assert [each["window"] for each in found["lengths"]] == [16, 32, 64]
    assert all(each["loss"] > 0 for each in found["lengths"]) and "run" in capsys.readouterr().out
