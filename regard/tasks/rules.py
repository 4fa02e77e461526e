"""The rules by which a run that nobody configured is configured: from its data and its time, each with its reason. No torch.

A rule gives a setting that the person left open. Its value is fixed, or follows from one fact: the number of examples, of
characters, of labels, the seconds that are left for training, or how much text there is for each of these seconds. Where a
reason names figures, they were measured (`benchmarks/recipes.py`, results in `docs/results/recipes.json`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.config import Tables

MORE = float("inf")
Value = str | int | float | bool | None
Facts = Mapping[
    str, float
]  # examples, characters, words, labels; size and channels of pictures; length of texts; seconds; characters a second;
# updates an epoch; side of pictures that are written, and picture, the tokens of one
COUNTED = (
    "examples", "characters", "words", "labels", "seconds", "channels", "characters a second", "updates an epoch"
)  # fmt: skip


@dataclass(frozen=True)
class By:
    """A value that follows from a fact: that of the first row whose limit the fact does not exceed."""

    fact: str
    rows: tuple[tuple[float, Value], ...]

    def value(self, facts: Facts) -> Value:
        return next(value for limit, value in self.rows if facts[self.fact] <= limit)

    def told(self, facts: Facts) -> str:
        """The fact as a reason: "5,000 examples"."""
        found = facts[self.fact]
        return f"{found:,.0f} {self.fact}" if self.fact in COUNTED else f"{self.fact} {found:,.0f}"


@dataclass(frozen=True)
class Same:
    """A value that is a fact itself, a whole number."""

    fact: str

    def value(self, facts: Facts) -> Value:
        return int(facts[self.fact])


def by(fact: str, *rows: tuple[float, Value]) -> By:
    return By(fact, rows)


@dataclass(frozen=True)
class Rule:
    """One setting, the value it gets, and why."""

    setting: str  # as a person sets it: train.lr
    to: Value | By | Same
    why: str
    kinds: tuple[str, ...] = ()  # of models for which it holds; none: all
    tokens: tuple[str, ...] = ()  # kinds of tokens for which it holds; none: all

    def holds(self, kind: str, tokens: str) -> bool:
        """Whether it is for such a model and such tokens."""
        return (not self.kinds or kind in self.kinds) and (not self.tokens or tokens in self.tokens)

    def value(self, facts: Facts) -> Value:
        return self.to.value(facts) if isinstance(self.to, By | Same) else self.to

    def reason(self, facts: Facts) -> str:
        return f"{self.to.told(facts)}: {self.why}" if isinstance(self.to, By) else self.why


@dataclass(frozen=True)
class Size:
    """One size of a kind of model, and how many updates it must have to be worth its cost."""

    least_updates: int
    settings: Tables


@dataclass(frozen=True)
class Sizes:
    """The sizes of a kind of model, smallest first, and where the numbers of updates come from."""

    rows: tuple[Size, ...]
    why: str


RATE = 0.2  # of the rate of a fresh run, where a run goes on from a model of its own task
KEPT = ("tokens.", "model.", "decode.")  # what such a model brings


BLENDED = Rule("train.blend", "auto", "so much of the old weights that old data's perplexity rises by 5% at most")


def fine_tuned(rules: Sequence[Rule], mixes: bool) -> tuple[Rule, ...]:
    """The rules of a run that goes on from a model of its own task: all but those of what the model brings.

    If it `mixes` old data in, weights are blended so that little of the old is forgotten.
    """
    kept = tuple(rule for rule in rules if not rule.setting.startswith(KEPT))
    return (*kept, BLENDED) if mixes else kept


TIMED = (
    Rule("train.schedule", "wsd", "the rate falls when the clock says so, and ends with the time"),
    Rule("train.steps", 10_000_000, ""),  # the clock ends it
    Rule("train.average", 0, ""),  # a rate that falls to zero averages already
    Rule("train.patience", 4, "so many validations without a better one begin the fall early"),
)

TRANSLATE = (
    Rule("tokens.size", by("examples", (2_000, 2_000), (15_000, 4_000), (MORE, 8_000)), "few pairs teach few pieces"),
    Rule("model.norm", "pre", "learns from the first update on, at any rate", ("transformer",)),
    Rule(
        "model.positions",
        "rotary",
        "BLEU 20.0 where sinusoidal ones gave 16.7 (5,000 pairs, five minutes)",
        ("transformer",),
    ),
    Rule("model.dropout", by("examples", (15_000, 0.3), (MORE, 0.1)), "few pairs are soon learned by heart"),
    Rule("train.optimiser", "muon", "every direction of a matrix learns at the same pace"),
    Rule("train.lr", 1e-2, "of 0.005, 0.01 and 0.02"),
    Rule("train.warmup", 50, "Muon needs no longer one"),
    Rule("train.batch_tokens", by("examples", (15_000, 1_536), (MORE, 2_048)), "Muon costs as much for a smaller one"),
    Rule("decode.length_penalty", "power", "half a BLEU more than gnmt, whose translations are 12% too short"),
    Rule("decode.alpha", 1.0, "of 0.6, 1.0 and 1.2"),
    Rule("validate.sentences", by("seconds", (200, 150), (900, 300), (MORE, 500)), "time is better spent learning"),
)

READ = Rule(
    "validate.tokens", by("seconds", (90, 32_768), (240, 65_536), (MORE, 262_144)), "time is better spent learning"
)

GENERATE = (
    Rule(
        "tokens.size",
        by("characters", (200_000, 512), (4_000_000, 1_024), (MORE, 4_096)),
        "fewer tokens, seen more often",
    ),
    Rule("data.context", by("seconds", (240, 64), (MORE, 128)), "a longer one is worth its cost only later"),
    Rule(
        "model.dropout",
        by("characters a second", (25_000, 0.1), (MORE, 0.0)),
        "about one pass in the time; what is read again and again is learned by heart",
    ),
    Rule("train.optimiser", "muon", "tiny Shakespeare in two minutes: 1.63 nats a character, nanoGPT with AdamW 1.91"),
    Rule("train.lr", 1e-2, "as for translation"),
    Rule(
        "train.embedding_rate", 3.0, "a word's own row learns only where it is met: PTB 109 in 20 minutes, 112 with 1"
    ),
    Rule("train.batch_tokens", 1_024, "many small updates"),
    READ,
    Rule("data.context", 320, "a whole piece of eight bars in two voices", tokens=("notes",)),
    Rule("data.context", 2_048, "a quarter of a second of sound at 8,000 samples a second", tokens=("samples",)),
    Rule("train.batch_tokens", 8_192, "samples say little, each by itself", tokens=("samples",)),
    Rule(
        "train.embedding_rate",
        1.0,
        "there are few tokens, and all are met often",
        tokens=("notes", "samples", "pixels"),
    ),
    Rule(
        "train.batch_tokens",
        by("side", (20, 4_112), (MORE, 12_560)),
        "sixteen pictures of 16 x 16, or of 28 x 28",
        tokens=("pixels",),
    ),
    Rule("train.lr", 8e-3, "as in the recorded experiments", tokens=("pixels",)),
    Rule("data.context", Same("picture"), "a whole picture", tokens=("pixels",)),
)

FILL = (
    Rule("tokens.size", by("characters", (1_000_000, 1_024), (MORE, 4_096)), "fewer tokens, seen more often"),
    Rule("model.norm", "pre", "learns from the first update on, at any rate"),
    Rule("data.context", 64, "gaps are filled from the words around them"),
    Rule("masked", 0.3, "more to guess in each text (Wettig et al. 2023)"),
    Rule("train.optimiser", "muon", "tiny Shakespeare in 100 s of a core: 5.11 nats a gap, AdamW 6.06"),
    Rule("train.lr", 5e-3, "with 0.01 gaps had 5.81 nats then"),
    Rule("train.warmup", 50, "Muon needs no longer one"),
    Rule("train.batch_tokens", 2_048, "only some of the tokens are guessed"),
    READ,
)

CLASSIFY = (
    Rule("model.kind", "additive", "the best rung of the ladder on SST-2, TREC and IMDb", ("self-attention",)),
    Rule(
        "tokens.kind", by("length", (30, "character"), (MORE, "word")), "of names the letters tell, of texts the words"
    ),
    Rule("tokens.lowercase", by("length", (30, False), (MORE, True)), "of words, case says little"),
    Rule("tokens.size", 20_000, "rare words tell the label, too"),
    Rule("model.dropout", by("examples", (20_000, 0.5), (MORE, 0.3)), "few texts are soon learned by heart"),
    Rule("train.lr", 4e-3, "of 0.0015, 0.004 and 0.01", ("additive",)),
    Rule("train.batch_tokens", by("length", (400, 1_024), (MORE, 4_096)), "some tens of texts in each"),
    Rule("train.epochs", by("length", (30, 100), (MORE, 15)), "more passes only learn the texts by heart"),
)

PICTURES = (
    Rule(
        "data.augment.crop", by("size", (16, 1), (24, 2), (48, 3), (96, 8), (MORE, 16)), "each pass sees other windows"
    ),
    Rule(
        "data.augment.flip", by("channels", (1, False), (MORE, True)), "photographs have no left and right, letters do"
    ),
    Rule("train.batch_pictures", 64, "many small updates"),
    Rule("train.lr", 3e-3, "as in the recorded experiments", ("resnet",)),
    Rule(
        "train.optimiser",
        "muon",
        "CIFAR-10 in 100 s of a core: 80.4% where AdamW has 77.2; a ViT of drawn letters 87.5 and 62.8",
        ("convnet", "convmixer", "vit", "mixer"),
    ),
    Rule("train.lr", 1e-2, "of 0.003, 0.005 and 0.01", ("convnet", "convmixer", "vit", "mixer")),
    Rule("train.smoothing", by("size", (30, 0.0), (MORE, 0.1)), "labels of larger pictures are less certain"),
    Rule("train.ema", 0.98, "validations swing less"),
)

GRAPHS = (
    Rule(
        "model.dropout",
        by("examples", (300, 0.6), (MORE, 0.3)),
        "few labels are soon learned by heart",
        ("gat", "gatv2"),
    ),
    Rule("model.attention_dropout", by("examples", (300, 0.6), (MORE, 0.0)), "likewise", ("gat", "gatv2")),
    Rule("train.validate_every", by("updates an epoch", (1, 20), (MORE, 100)), "a validation costs an update"),
    Rule("train.patience", 8, "so many validations without a better one begin the fall early"),
    Rule("train.epochs", by("updates an epoch", (1, 800), (MORE, 80)), "more passes only learn the labels by heart"),
)

CAPTION = (
    Rule("tokens.size", by("words", (500, 10_000), (MORE, 4_000)), "rarer words are not learned from so few captions"),
    Rule("model.width", by("words", (500, 64), (MORE, 256)), "as many words as must be told apart"),
    Rule("model.hidden", by("words", (500, 128), (MORE, 384)), "likewise", ("show-attend-tell", "show-and-tell")),
    Rule("model.dropout", by("words", (500, 0.0), (MORE, 0.4)), "captions of photographs are soon learned by heart"),
    Rule("train.lr", by("words", (500, 2e-3), (MORE, 1e-3)), "as in the recorded experiments"),
    Rule("train.batch_pictures", by("words", (500, 32), (MORE, 64)), "many small updates"),
    Rule("train.smoothing", by("words", (500, 0.0), (MORE, 0.1)), "a picture has many captions"),
)

ANSWER = (
    Rule("model.width", 64, "few words and answers"),
    Rule("model.feed_forward", 128, "likewise"),
    Rule("train.optimiser", "muon", "100% of easy-VQA where AdamW has 93.6%"),
    Rule("data.together", 4, "to look at a picture takes longer than to ask it: twice as many questions in the time"),
    Rule("train.lr", 2e-3, "as fast as 0.005 on drawn scenes, which once did not learn at all"),
    Rule("train.batch_pictures", 64, "many small updates"),
)

ASK = (
    Rule(
        "model.noise",
        by("examples", (20_000, 0.1), (MORE, 0.0)),
        "places of few stories are soon learned by heart",
        ("memory-network",),
    ),
    Rule(
        "model.tying",
        by("examples", (20_000, "adjacent"), (MORE, "none")),
        "tables of every hop's own need many stories",
        ("memory-network",),
    ),
    Rule("train.lr", 1e-2, "as in the recorded experiments", ("memory-network",)),
    Rule("train.lr", 1e-3, "as in the recorded experiments", ("lstm", "bert")),
    Rule("train.batch_tokens", 8_192, "about a hundred stories in each"),
)

COMPUTE = (
    Rule(
        "train.lr",
        3e-3,
        "all test questions of up to two operations right after five minutes, with three seeds of three",
    ),
    Rule("train.batch_tokens", 1_024, "about a hundred questions in each"),
)

HEARD = (
    Rule("data.augment.speed", 0.1, "three speeds and more of each voice (Ko et al. 2015)"),
    Rule("data.augment.noise", 10.0, "other rooms and microphones"),
    Rule("data.augment.time_masks", 2, "no single moment tells all (SpecAugment)"),
    Rule("data.augment.mel_masks", 2, "nor a single band"),
    Rule("data.augment.tract", 0.1, "other voices"),
    Rule("train.optimiser", "muon", "spoken digits: 94.7% of unseen recordings after 300 updates"),
    Rule("train.lr", 1e-2, "with Muon, as in the recorded experiments"),
    Rule("train.batch_tokens", by("examples", (5_000, 2_048), (MORE, 4_096)), "many small updates"),
)

TRANSCRIBE = (
    *HEARD,
    Rule("validate.sounds", by("seconds", (200, 50), (MORE, 200)), "time is better spent learning"),
)

SIZES: dict[str, dict[str, Sizes]] = {  # task -> kind -> sizes
    "translate": {
        "transformer": Sizes(
            (
                Size(0, {"encoder_layers": 3, "decoder_layers": 3, "width": 128, "heads": 4, "feed_forward": 256}),
                Size(800, {"encoder_layers": 4, "decoder_layers": 4, "width": 128, "heads": 4, "feed_forward": 256}),
                Size(3_500, {"encoder_layers": 4, "decoder_layers": 4, "width": 192, "heads": 6, "feed_forward": 512}),
                Size(6_000, {"encoder_layers": 4, "decoder_layers": 4, "width": 256, "heads": 8, "feed_forward": 1024}),
            ),
            "in ten minutes of a core on Multi30k 855 updates of width 128 gave BLEU 33.5, 440 of width 192 28.2",
        ),
    },
    "generate": {
        "pixelcnn": Sizes(
            (
                Size(0, {"layers": 5, "channels": 16, "kernel": 3}),
                Size(1_000, {"layers": 7, "channels": 24, "kernel": 5}),
            ),
            "a larger one learns more from each update, and has fewer of them",
        ),
        "llama": Sizes(
            (
                Size(0, {"layers": 3, "width": 96, "heads": 3, "feed_forward": 256}),
                Size(800, {"layers": 4, "width": 128, "heads": 4, "feed_forward": 344}),
                Size(3_500, {"layers": 6, "width": 192, "heads": 6, "feed_forward": 512}),
                Size(8_000, {"layers": 6, "width": 256, "heads": 8, "feed_forward": 688}),
            ),
            "in 20 minutes of a core on PTB 2,994 updates of width 128 gave perplexity 101.8, 1,459 of width 192 106.4",
        ),
    },
    "fill": {
        "bert": Sizes(
            (
                Size(0, {"layers": 3, "width": 96, "heads": 3, "feed_forward": 256}),
                Size(800, {"layers": 4, "width": 128, "heads": 4, "feed_forward": 512}),
                Size(2_500, {"layers": 6, "width": 192, "heads": 6, "feed_forward": 768}),
            ),
            "a larger one learns more from each update, and has fewer of them",
        )
    },
    "classify-pictures": {
        "convnet": Sizes(
            (
                Size(0, {"channels": (16, 32, 64), "layers": 2}),
                Size(2_000, {"channels": (32, 64, 128, 192), "layers": 1}),
                Size(6_000, {"channels": (48, 96, 192, 256), "layers": 2}),
            ),
            "a larger one learns more from each update, and has fewer of them",
        )
    },
}
