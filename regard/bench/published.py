"""What published models cost on paper: parameters and operations from their configurations, beside what papers state.

With L layers of width D, feed-forward width F, a vocabulary of V and T tokens of context, one token costs forward

    2 · (L (4 D² + 2 D F) + V D)      products with weights        (a decoder with a memory: 8 D² in place of 4 D²)
  + 4 · L T D                         scores, and sums of values   (Kaplan et al. 2020, section 2.1, table 1)

floating-point operations, and learning from it three times as many: the backward pass has two products for each one of
the forward pass. Attention counts all pairs, as it is mostly computed; embeddings are looked up, and norms and softmax
are left out. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from regard.errors import UsageError, nearest
from regard.models.config import GPT2Config, GPT3Config, TransformerConfig
from regard.training.energy import JOULES_PER_KWH, Prices

BACKWARD = 3  # times the forward pass, the forward pass included
WORDS_OF_SENTENCE = 30  # tokens of a sentence of WMT 2014, about: an assumption that only attention's small part needs

Config = TransformerConfig | GPT2Config | GPT3Config


@dataclass(frozen=True)
class Device:
    """An accelerator as it was used: what it did, what it drew, and what an hour of it costs."""

    name: str
    operations: float  # a second, sustained
    watts: float  # of one, with its share of the computer around it
    overhead: float  # energy in all for each that computes
    dollars: float  # an hour
    source: str


P100 = Device(
    "P100",
    9.5e12,
    1415.78 / 8,
    1.58,
    1.46,
    "9.5 TFLOP/s: Vaswani et al. 2017, footnote 5; power, overhead and 1.46 dollars an hour: Strubell et al. 2019, section 2 "
    "and table 3",
)
V100 = Device(
    "V100",
    24.6e12,
    330.0,
    1.1,
    1.5,
    "24.6 TFLOP/s, 330 W and overhead 1.1: Patterson et al. 2021, table 4; 1.5 dollars an hour: Li 2020, Lambda Labs",
)


@dataclass(frozen=True)
class Stated:
    """A number of a paper, with its place."""

    value: float
    source: str


@dataclass(frozen=True)
class Published:
    """A model of a paper: its configuration, how long it learned, and what is stated of it by name of the number."""

    name: str
    title: str
    config: Config
    vocabulary: int
    context: int  # tokens that attend to each other
    tokens: float | None  # learned from; of a translation model, on each side; None: not stated
    device: Device | None
    stated: dict[str, Stated]
    source: str
    notes: tuple[str, ...] = field(default=())


ATTENTION = "Vaswani et al. 2017, Attention is all you need"
GPT2 = "Radford et al. 2019, Language models are unsupervised multitask learners"
GPT3 = "Brown et al. 2020, Language models are few-shot learners"
STRUBELL, PATTERSON = "Strubell et al. 2019, table 3", "Patterson et al. 2021, table 4"
POUND = 453.592  # grams


def _transformer(name: str, width: int, heads: int, inner: int, steps: float, stated: dict[str, Stated]) -> Published:
    config = TransformerConfig(
        encoder_layers=6, decoder_layers=6, width=width, heads=heads, feed_forward=inner, norm="post", tied="all"
    )
    title = f"Transformer ({name.split('-')[1]}), English to German"
    notes = (
        f"{steps:,.0f} updates of about 25,000 tokens on each side (section 5.1); sentences of {WORDS_OF_SENTENCE} tokens "
        "are assumed, for attention",
        "the paper states what 8 GPUs could have computed in its hours; the configuration says what was needed",
    )
    return Published(
        name, title, config, 37_000, WORDS_OF_SENTENCE, 25_000 * steps, P100, stated, ATTENTION, notes
    )  # fmt: skip


def _gpt2(name: str, layers: int, width: int, stated: float) -> Published:
    config = GPT2Config(layers=layers, width=width, heads=width // 64, feed_forward=4 * width, max_length=1024)
    wrong = "the paper's count left something out: its authors gave 124, 355, 774 and 1,558 million later (their repository)"
    notes = (wrong, "how many tokens it learned from is not stated")
    numbers = {"parameters": Stated(stated, "Radford et al. 2019, table 2")}
    return Published(name, f"GPT-2, {layers} layers", config, 50_257, 1024, None, None, numbers, GPT2, notes)


PUBLISHED: dict[str, Published] = {
    each.name: each
    for each in (
        _transformer("transformer-base", 512, 8, 2048, 100_000, {
            "parameters": Stated(65e6, "Vaswani et al. 2017, table 3"),
            "training": Stated(3.3e18, "Vaswani et al. 2017, table 2"),
            "device_hours": Stated(8 * 12, "Vaswani et al. 2017, section 5.2"),
            "kilowatt_hours": Stated(27, STRUBELL),
            "grams": Stated(26 * POUND, STRUBELL),
            "dollars": Stated(140, f"{STRUBELL} (41 where it may be interrupted)"),
        }),
        _transformer("transformer-big", 1024, 16, 4096, 300_000, {
            "parameters": Stated(213e6, "Vaswani et al. 2017, table 3"),
            "training": Stated(2.3e19, "Vaswani et al. 2017, table 2"),
            "device_hours": Stated(8 * 84, "Vaswani et al. 2017, section 5.2"),
            "kilowatt_hours": Stated(201, STRUBELL),
            "grams": Stated(192 * POUND, STRUBELL),
            "dollars": Stated(981, f"{STRUBELL} (289 where it may be interrupted)"),
        }),
        _gpt2("gpt-2", 12, 768, 117e6),
        _gpt2("gpt-2-medium", 24, 1024, 345e6),
        _gpt2("gpt-2-large", 36, 1280, 762e6),
        _gpt2("gpt-2-xl", 48, 1600, 1542e6),
        Published(
            "gpt-3", "GPT-3, 175 billion", GPT3Config(layers=96, width=12_288, heads=96, feed_forward=4 * 12_288,
                                                     max_length=2048, band=0),
            50_257, 2048, 300e9, V100, {
                "parameters": Stated(174.6e9, "Brown et al. 2020, table D.1"),
                "training": Stated(3.14e23, "Brown et al. 2020, table D.1 (3,640 petaflop/s-days; attention left out)"),
                "device_hours": Stated(10_000 * 14.8 * 24, PATTERSON),
                "kilowatt_hours": Stated(1_287_000, PATTERSON),
                "grams": Stated(552.1e6, f"{PATTERSON} (429 g a kWh)"),
            }, GPT3, ("every layer counts as dense; half of them look only at a band",),
        ),
    )
}  # fmt: skip


# --- Counting


def parameters_of(config: Config, vocabulary: int) -> int:
    """Every weight and bias, and the norms; embeddings and output are one table."""
    width, inner = config.width, config.feed_forward
    attention, feed_forward, norm = 4 * width**2 + 4 * width, 2 * width * inner + inner + width, 2 * width
    table = vocabulary * width
    if isinstance(config, TransformerConfig):
        encoder = attention + feed_forward + 2 * norm
        decoder = 2 * attention + feed_forward + 3 * norm
        return table + config.encoder_layers * encoder + config.decoder_layers * decoder
    places = config.max_length * width
    return table + places + config.layers * (attention + feed_forward + 2 * norm) + norm


def forward_operations(config: Config, vocabulary: int, context: int) -> int:
    """Floating-point operations of a token, as long as the text is; of a translation model, of one on each side."""
    width, inner = config.width, config.feed_forward
    attention, feed_forward, pairs = 4 * width**2, 2 * width * inner, 2 * context * width
    output = vocabulary * width
    if isinstance(config, TransformerConfig):
        encoder = config.encoder_layers * (attention + feed_forward + pairs)
        return 2 * (encoder + config.decoder_layers * (2 * attention + feed_forward + 2 * pairs) + output)
    return 2 * (config.layers * (attention + feed_forward + pairs) + output)


@dataclass(frozen=True)
class PaperCost:
    """What a published model costs on paper; None where its paper does not say how long it learned."""

    model: Published
    parameters: int
    forward: int  # operations of a token
    training: float | None  # of the whole training
    rule: float | None  # 6 N D: six operations for each parameter and token
    device_hours: float | None
    kilowatt_hours: float | None
    grams: float | None
    dollars: float | None
    prices: Prices

    def data(self) -> dict[str, object]:
        """For JSON."""
        names = ("parameters", "forward", "training", "rule", "device_hours", "kilowatt_hours", "grams", "dollars")
        model, device = self.model, self.model.device
        return {
            "name": model.name,
            "title": model.title,
            "config": {
                **model.config.model_dump(mode="json"),
                "vocabulary": model.vocabulary,
                "context": model.context,
            },
            "tokens": model.tokens,
            **{name: getattr(self, name) for name in names},
            "stated": {name: {"value": each.value, "source": each.source} for name, each in model.stated.items()},
            "device": None if device is None else {"name": device.name, "source": device.source},
            "source": model.source,
            "notes": list(model.notes),
            "prices": self.prices.model_dump(),
        }


def paper_cost(model: Published, prices: Prices | None = None) -> PaperCost:
    """Parameters, operations and, on the devices that it was trained on, hours, energy, CO2 and money.

    Of the prices, what an hour of a device costs is the device's own unless `machine` is set, and so are its watts and
    overhead; money is for the hours, energy included.
    """
    prices = prices or Prices()
    parameters = parameters_of(model.config, model.vocabulary)
    forward = forward_operations(model.config, model.vocabulary, model.context)
    training = None if model.tokens is None else float(BACKWARD * forward * model.tokens)
    rule = None if model.tokens is None else 6.0 * parameters * model.tokens
    hours = energy = None
    if training is not None and model.device is not None:
        device = model.device
        hours = training / device.operations / 3600
        overhead = prices.overhead if prices.overhead > 1 else device.overhead
        energy = hours * 3600 * (prices.watts or device.watts) * overhead / JOULES_PER_KWH
    return PaperCost(
        model, parameters, forward, training, rule, hours, energy,
        _times(energy, lambda: prices.carbon),
        _times(hours, lambda: prices.machine or (model.device.dollars if model.device else 0.0)),
        prices,
    )  # fmt: skip


def _times(value: float | None, price: Callable[[], float]) -> float | None:
    return None if value is None else value * price()


def published(name: str) -> Published:
    """The published model of that name."""
    if name not in PUBLISHED:
        raise UsageError(f"no published model {name}", f"{nearest(name, PUBLISHED)}; there is {', '.join(PUBLISHED)}")
    return PUBLISHED[name]
