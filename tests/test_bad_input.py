"""Everything a person can hand in wrongly gets one line that says where, what, and what to do."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from regard.config import find_file, from_assignments, read_toml
from regard.data.config import PairsConfig
from regard.data.lines import LONGEST_LINE
from regard.data.pairs import load_pairs, read_pairs
from regard.errors import RegardError, UsageError
from regard.tasks import load, train
from regard.tasks.configure import run_config
from regard.tasks.run import RunResult, start_run
from regard.training.show import Show

FIELDS = ("source", "target")


def write(folder: Path, name: str, content: str | bytes) -> str:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return str(folder / name)


def refusal(*names: str) -> str:
    """What reading these files says."""
    with pytest.raises(RegardError) as caught:
        read_pairs(names, FIELDS)
    return str(caught.value)


# -- data files --------------------------------------------------------------------------------------------------------


def test_unequal_line_counts(tmp_path: Path) -> None:
    source, target = write(tmp_path, "t.en", "a\n" * 1200), write(tmp_path, "t.de", "a\n" * 1199 + "\n\n")
    assert refusal(source, target).startswith(f"{source} has 1,200 lines and {target} has 1,201; line n of one must")


@pytest.mark.parametrize("name", ["t.tsv", "t.jsonl"])
def test_an_empty_file(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name, "")
    assert refusal(file) == f"{file} is empty; it should hold one sentence or pair a line"


def test_an_empty_parallel_file(tmp_path: Path) -> None:
    full, empty = write(tmp_path, "t.en", "a\n"), write(tmp_path, "t.de", "")
    assert refusal(full, empty).startswith(f"{empty} is empty")


def test_empty_lines_are_dropped_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "a\tb\n\n \t \nc\t\n\td\ne\tf\n")
    valid = write(tmp_path, "v.tsv", "x\ty\n\n")
    sets = load_pairs(PairsConfig(train=(file,), valid=(valid,)))
    assert sets.train == [("a", "b"), ("e", "f")] and sets.valid == [("x", "y")]
    assert sets.notes == (
        "dropped 4 of 6 training pairs: 4 with an empty side",
        "dropped 1 of 2 validation pairs: 1 with an empty side",
    )


def test_nothing_but_empty_lines(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "\n\n\n")
    with pytest.raises(
        RegardError, match="no training pair is left of 3: dropped 3 of 3 training pairs: 3 with an empty side"
    ):
        load_pairs(PairsConfig(train=(file,), valid=(file,)))


def test_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", b"a\tb\n\xc3\xa9\tf\xe9e\n")
    assert refusal(file).startswith(
        f"{file}, line 2: byte 5 (0xe9) is not UTF-8; convert it first, for example with: iconv"
    )


def test_a_file_in_utf_16(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "a\tb\n".encode("utf-16"))
    assert "line 1: byte 1 (0xff) is not UTF-8" in refusal(file) and f"iconv -f utf-16 -t utf-8 {file} > " in refusal(
        file
    )


def test_a_line_of_ten_megabytes_is_left_out_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "a\tb\n" + "x" * 10_000_000 + "\ty\nc\td\n")
    sets = load_pairs(PairsConfig(train=(file,), valid=("builtin/dates/valid",)))
    assert list(sets.train) == [("a", "b"), ("c", "d")]  # mapped, as the file is large
    assert sets.notes == (f"dropped 1 of 3 training pairs: 1 with a side over {LONGEST_LINE:,} characters",)


def test_a_text_of_ten_megabytes_is_not_translated(tiny_run: RunResult) -> None:
    model = load(tiny_run.best)
    for use in (model.translate, lambda text: model.score([("a", text)])):
        with pytest.raises(RegardError, match="a text of 10,000,000 characters is over the limit of 100,000; split it"):
            use("x" * 10_000_000)


def test_a_lone_surrogate_is_not_translated(tiny_run: RunResult) -> None:
    with pytest.raises(RegardError, match="a lone surrogate, which is not Unicode text"):
        load(tiny_run.best).translate("a\ud800")


@pytest.mark.parametrize("cut", [1, 9, 20, 45])
def test_a_truncated_gzip(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(b"".join(b"%d\tb\n" % number for number in range(1000)))
    file = write(tmp_path, "t.tsv.gz", whole[:cut] if cut < 40 else whole[:-cut])
    assert refusal(file).startswith(f"{file} is not a whole gzip file (") and refusal(file).endswith("fetch it again")


def test_a_gzip_in_name_only(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv.gz", "a\tb\n")
    assert refusal(file).startswith(f"{file} is not a whole gzip file (Not a gzipped file")


def test_a_gzip_with_a_wrong_sum(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"a\tb\n" * 100))
    whole[-6] ^= 1
    assert "is not a whole gzip file" in refusal(write(tmp_path, "t.tsv.gz", bytes(whole)))


def test_a_line_without_a_tab(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "a\tb\n\nc d\n")
    assert refusal(file) == f"{file}, line 3: no tab; write source, tab, target (further columns are ignored)"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"source": "a", "target"', "Expecting ':' delimiter"),
        ("a, b", "Expecting value"),
        ('{"source": "a", "targt": "b"}', "no key 'target'; did you mean targt?"),
        ('["a", "b"]', "a list, not an object"),
        ('{"source": "a", "target": 3}', "target is 3, not a text"),
        ('{"source": null, "target": "b"}', "source is None, not a text"),
        (r'{"source": "\ud800", "target": "b"}', "source holds a lone surrogate"),
        ("[" * 100_000, "recursion"),
        ("1" * 10_000, "integer string conversion"),
    ],
)
def test_a_line_that_is_no_pair_in_json(tmp_path: Path, line: str, what: str) -> None:
    file = write(tmp_path, "t.jsonl", f'{{"source": "a", "target": "b"}}\n{line}\n')
    message = refusal(file)
    assert message.startswith(f"{file}, line 2: ") and what in message
    assert message.endswith('each line should be {"source": "…", "target": "…"} (see data.fields)')


def test_a_file_of_an_unknown_kind(tmp_path: Path) -> None:
    file = write(tmp_path, "t.txt", "a\tb\n")
    assert refusal(file).endswith(
        "pairs come as one .tsv, .csv or .jsonl file, or as two parallel files (each may end in .gz)"
    )
    assert "t.txt: it has tabs: call it t.tsv; pairs" in refusal(file)
    assert "it has tabs: call it u.tsv.gz; pairs" in refusal(
        write(tmp_path, "u.txt.gz", gzip.compress(b"a\tb\n\nc\td\n"))
    )
    assert "tabs" not in refusal(write(tmp_path, "v.txt", "a\tb\nc\n"))


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").mkdir()
    assert refusal(str(tmp_path / "t.tsv")) == f"cannot read {tmp_path}/t.tsv: Is a directory"


def test_an_unknown_builtin_set() -> None:
    with pytest.raises(UsageError, match="there is no split 'tset'; did you mean test"):
        read_pairs(["builtin/dates/tset"], FIELDS)


# -- where files are looked for ----------------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    with pytest.raises(RegardError) as caught:
        find_file("t.tsv", data_root=tmp_path)
    assert str(caught.value) == (
        f"there is no t.tsv (looked at t.tsv, {tmp_path}/t.tsv); REGARD_DATA may name the folder of the data"
    )


def test_the_folder_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "beside", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))
    with pytest.raises(RegardError, match=r"there is no t\.tsv \(looked at t\.tsv, .*beside/t\.tsv, .*data/t\.tsv\)$"):
        find_file("t.tsv", data_root=tmp_path / "beside")
    for place in ("data", "beside", "here"):  # the nearer wins
        write(tmp_path / place, "t.tsv", f"a\t{place}\n")
        found = find_file("t.tsv", data_root=tmp_path / "beside")
        assert found.read_text() == f"a\t{place}\n"
    assert read_pairs(["t.tsv"], FIELDS) == [("a", "here")]


def test_a_configuration_finds_the_data_beside_it(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    dates = "".join(f"{source}\t{target}\n" for source, target in read_pairs(["builtin/dates"], FIELDS)[:80])
    (tmp_path / "my" / "runs").mkdir(parents=True)
    write(tmp_path / "my", "t.tsv", dates)
    write(tmp_path / "my", "t.toml", '[data]\ntrain = "t.tsv"\nvalid = "builtin/dates/valid"\n')
    tables = {name: tiny_settings[name] for name in ("tokens", "model", "train", "validate")}
    result = train(str(tmp_path / "my" / "t.toml"), folder=tmp_path / "my" / "runs" / "1", **tables)
    assert result.outcome.reason == "steps"


# -- test sentences in training, filters -------------------------------------------------------------------------------


def test_test_sentences_that_occur_in_training(tmp_path: Path) -> None:
    file = write(tmp_path, "t.tsv", "a\tb\nc\td\ne\tf\n")
    other = write(tmp_path, "o.tsv", "a \tx\nnew\ty\ne\tz\n")
    notes = load_pairs(PairsConfig(train=(file,), valid=(other,), test=(other,))).notes
    assert notes == tuple(
        f"warning: 2 of 3 {which} sentences also occur in training; scores on them flatter: take them out of training"
        for which in ("validation", "test")
    )


class Notes(Show):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def test_a_run_says_what_it_dropped_and_why(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    dates = read_pairs(["builtin/dates"], FIELDS)[:40]
    odd = [("a " * 40, "b"), ("c", "d" * 99), ("", "x")]
    file = write(tmp_path, "t.tsv", "".join(f"{source}\t{target}\n" for source, target in dates + odd))
    tiny_settings["data"] = {"train": file, "valid": "builtin/dates/valid", "max_length": 60}
    tiny_settings["tokens"] = {"kind": "character"}
    show = Notes()
    start_run(run_config("translate", tiny_settings), folder=tmp_path / "run", show=show)
    assert show.said[:3] == [
        "dropped 1 of 43 training pairs: 1 with an empty side",
        "dropped 2 of 42 training pairs: 2 with a side over 60 tokens",
        "40 training and 1,000 validation pairs",
    ]


def test_a_run_that_cannot_start_leaves_nothing_behind(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    """The bug: it left a folder with the tokenizer, which then counted as a run of its own."""
    tiny_settings["data"] |= {"max_length": 2}
    with pytest.raises(RegardError, match="no training pair is left"):
        start_run(run_config("translate", tiny_settings), folder=tmp_path / "run")
    tiny_settings["data"] = {"train": "none.tsv"}
    with pytest.raises(RegardError, match=r"there is no none\.tsv"):
        start_run(run_config("translate", tiny_settings), folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    write(tmp_path, "mine", "x")
    with pytest.raises(
        UsageError, match=f"{tmp_path} is not empty; choose another folder, or go on with: regard train"
    ):
        start_run(run_config("translate", tiny_settings), folder=tmp_path)
    assert (tmp_path / "mine").read_text() == "x"


# -- configuration -----------------------------------------------------------------------------------------------------


def complaint(over: dict[str, Any] | None = None, assignments: list[str] | None = None, what: str = "translate") -> str:
    with pytest.raises(UsageError) as caught:
        run_config(what, over, assignments)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"train": {"warmupp": 3}}, "translate: no key train.warmupp; did you mean warmup?"),
        ({"train": {"learning_rate": 3}}, "translate: no key train.learning_rate; here it is train.lr"),
        ({"train": {"batch_size": 3}}, "train.batch_size; here it is train.batch_tokens or train.batch_pictures"),
        ({"train": {"num_epochs": 3}}, "no key train.num_epochs; here it is train.epochs"),
        ({"learning_rate": 3}, "translate: no key learning_rate; here it is train.lr"),
        ({"model": {"d_model": 3}}, "translate: no key model.d_model; here it is model.width"),
        ({"model": {"n_layers": 3}}, "model.n_layers; here it is model.encoder_layers or model.decoder_layers"),
        ({"model": {"kind": "luong", "n_layers": 3}}, "no key model.n_layers; here it is model.layers"),
        ({"model": {"num_heads": 3}}, "no key model.num_heads; here it is model.heads"),
        ({"model": {"dropout_rate": 0.1}}, "no key model.dropout_rate; here it is model.dropout"),
        ({"train": {"beam": 3}}, "translate: no key train.beam; here it is decode.beam"),
        ({"probes": 3.5}, "translate: probes: must be a whole number, not 3.5"),
        ({"tran": {}}, "translate: no key tran; did you mean train?"),
        ({"model": {"layers": 3}}, "translate: no key model.layers; did you mean encoder_layers?"),
        ({"validate": {"sentence": 3}}, "translate: no key validate.sentence; did you mean sentences?"),
        ({"validte": {}}, "translate: no key validte; did you mean validate?"),
        (
            {"train": {"xyz": 1}, "data": {"trian": "x"}},
            "no key data.trian; did you mean train?; no key train.xyz; there is acc",
        ),
        ({"train": {"steps": "many"}}, "translate: train.steps: must be a whole number, not 'many'"),
        ({"train": {"lr": -1}}, "translate: train.lr: must be more than 0, not -1"),
        ({"train": {"lr": float("nan")}}, "translate: train.lr: must be a number, not nan"),
        (
            {"train": {"schedule": "cosin"}},
            "translate: train.schedule: must be 'noam', 'inverse_sqrt', 'cosine'",
        ),
        ({"model": {"width": 10, "heads": 4}}, "width 10 cannot be split into 4 heads; choose a divisor"),
        ({"data": {"train": ["a", "b", "c"]}}, "data.train: name one file of pairs or two parallel files, not 3"),
        ({"data": {"train": []}}, "data.train: needs 1 or more, and there are 0"),
        ({"preset": "tinny"}, "no preset tinny; did you mean tiny?"),
        ({"preset": 3}, "preset is a name, not 3"),
        ({"train": 3}, "translate: train is a table, not 3; set a key of it, such as train.lr"),
        ({"model": "big"}, "translate: model is a table, not 'big'; set a key of it, such as model.width"),
        ({"tokens": []}, "translate: tokens is a table, not []; set a key of it, such as tokens.size"),
        ({"data": 3}, "translate: data: must be a table, not 3"),
    ],
)
def test_a_mistake_in_a_configuration(over: dict[str, Any], message: str) -> None:
    assert message in complaint(over)


def test_an_unknown_task() -> None:
    assert complaint(what="transalte") == "no task transalte; did you mean translate? (or name a .toml file)"


@pytest.mark.parametrize("text", ["train.lr", "=3", " = 3", ""])
def test_an_assignment_without_key_or_value(text: str) -> None:
    assert complaint(assignments=[text]).endswith("write table.key=value, for example train.lr=1e-3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lr=fast", "train.lr: must be a number, not 'fast'"),
        ("train=3", "train is a table, not 3"),
        ("train.lr.x=3", "train.lr: must be a number, not {'x': 3}"),
        ("train.=3", "no key train."),
        ("preset=hugee", "no preset hugee"),
        ("train.steps=1_0", ""),  # ten, as in TOML
    ],
)
def test_an_assignment_that_is_wrong(text: str, message: str) -> None:
    if not message:
        assert run_config("translate", assignments=[text]).train.steps == 10
        return
    assert message in complaint(assignments=[text])


def test_assignments_are_read_as_toml_and_else_as_text() -> None:
    tables = from_assignments(["train.lr=1e-3", "tokens.joint = false", "data.train=a=b.tsv", 'data.valid=["x", "y"]'])
    assert tables == {
        "train": {"lr": 1e-3},
        "tokens": {"joint": False},
        "data": {"train": "a=b.tsv", "valid": ["x", "y"]},
    }


def test_a_word_for_a_table_takes_none_of_its_keys_away_in_either_order() -> None:
    words = ["model.attention.reach=8", "model.attention=window"]
    wanted = {"model": {"attention": {"kind": "window", "reach": 8}}}
    assert from_assignments(words) == from_assignments(words[::-1]) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.attention=windo", "model.attention: no kind windo; did you mean window?"),
        ("model.attention.reach=8", "model.attention: say of which kind it is, with model.attention.kind"),
    ],
)
def test_a_kind_that_is_wrong_or_not_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        run_config("generate", assignments=[text])


def test_what_is_laid_over_what(tmp_path: Path) -> None:
    file = write(tmp_path, "c.toml", "[train]\nlr = 0.1\nsteps = 10\nwarmup = 5\n")
    config = run_config(file, {"train": {"lr": 0.2, "steps": 20}}, ["train.lr=0.3"])
    assert (config.train.lr, config.train.steps, config.train.warmup) == (0.3, 20, 5)


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"c\.toml is not valid TOML: .*line 2"):
        run_config(write(tmp_path, "c.toml", "[train]\nlr = \n"))
    with pytest.raises(UsageError, match=r"c\.toml is not valid TOML: 'utf-8' codec"):
        run_config(write(tmp_path, "c.toml", b"\xff"))
    with pytest.raises(UsageError, match=r"there is no file .*none\.toml"):
        run_config(str(tmp_path / "none.toml"))
    (tmp_path / "d.toml").mkdir()
    with pytest.raises(UsageError, match=r"d\.toml is a folder; name the TOML file in it"):
        read_toml(tmp_path / "d.toml")


def test_one_table_for_two_vocabularies(tmp_path: Path, tiny_settings: dict[str, Any]) -> None:
    tiny_settings["tokens"] |= {"joint": False}
    assert run_config("translate", tiny_settings).model.tied == "target"  # the default follows
    tiny_settings["model"] |= {"tied": "all"}
    tiny_settings["data"] |= {"builtin_size": 300}
    tiny_settings["tokens"] |= {"size": 400}
    with pytest.raises(
        UsageError, match=r'tied = "all" needs one vocabulary, but there are \d+ source and \d+ target tokens'
    ):
        start_run(run_config("translate", tiny_settings), folder=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
