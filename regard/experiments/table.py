"""The experiments by name: question, what lectures say, the paper, and how long it takes. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.errors import UsageError, nearest
from regard.plugins import imported

if TYPE_CHECKING:
    from regard.experiments.study import Study


@dataclass(frozen=True)
class Experiment:
    """One claim of the lectures, and the study that tests it, named as "module:name"."""

    name: str
    question: str
    claim: str  # what lectures say will come out
    paper: str
    minutes: float  # on one core
    place: str

    @property
    def study(self) -> Study:
        """The study that is run and drawn; imports torch."""
        found: Study = imported(f"regard.experiments.{self.place}")
        return found

    def data(self) -> dict[str, object]:
        return {
            "name": self.name,
            "question": self.question,
            "claim": self.claim,
            "paper": self.paper,
            "minutes": self.minutes,
        }


_ALL = (
    Experiment(
        "scores",
        "Which of the six scores of attention learns best, and what do they cost?",
        "Scores that look at what stands there beat the one by position alone; a dot product is faster and smaller than "
        "the additive score, and as good.",
        "Luong et al. 2015, section 3.1; Vaswani et al. 2017, section 3.2.1",
        1.5,
        "scores:SCORES",
    ),
    Experiment(
        "scaling",
        "Why are dot products divided by √d?",
        "Scores of width d have a deviation of √d, so that the softmax saturates and its gradient vanishes; divided by √d "
        "they keep both at every width, and the model learns better.",
        "Vaswani et al. 2017, section 3.2.1",
        1.5,
        "scaling:SCALING",
    ),
    Experiment(
        "feed-forward",
        "What does a Transformer lose without its feed-forward layers?",
        "Attention only averages: alone, layer upon layer makes all positions alike (rank one); feed-forward layers slow this "
        "down, residual connections prevent it; without feed-forward a model is worse.",
        "Dong et al. 2021, sections 2 and 3",
        1,
        "depth:FEED_FORWARD",
    ),
    Experiment(
        "tricks",
        "What is each trick of training worth?",
        "Residuals, norms, warm-up, label smoothing, dropout and weight decay each help; the norm after each residual needs "
        "the warm-up.",
        "Vaswani et al. 2017, section 5; Xiong et al. 2020",
        7,
        "tricks:TRICKS",
    ),
    Experiment(
        "decoder-only",
        "Does translation need an encoder and a decoder?",
        "Probably not: one causal stack over source and target does as well.",
        "Wang et al. 2021; Liu et al. 2018",
        1,
        "halves:DECODER_ONLY",
    ),
    Experiment(
        "recall",
        "Who remembers a long list: recurrent nets, state spaces or attention?",
        "A state of fixed size forgets as the list grows, a plain RNN first; attention looks everything up.",
        "Graves et al. 2014; Arora et al. 2024; Jelassi et al. 2024",
        4,
        "memory:RECALL",
    ),
    Experiment(
        "positions",
        "What does attention know of order, and where is it told?",
        "Without positions a sentence is a bag of words; added, concatenated or in queries, keys and values they are worth the "
        "same.",
        "Vaswani et al. 2017, section 3.5; Shaw et al. 2018",
        1,
        "order:POSITIONS",
    ),
    Experiment(
        "pictures",
        "When does a ViT beat a ConvNet, and who makes the most of its parameters?",
        "A ConvNet wins with few pictures, for it is made for them; with enough pictures the ViT wins, and it grows better "
        "with size.",
        "Dosovitskiy et al. 2021, section 4.3; Trockman & Kolter 2022",
        4,
        "pictures:PICTURES",
    ),
    Experiment(
        "recurrence",
        "What does a longer sequence do to recurrent layers, and what to attention?",
        "A recurrent layer takes as many steps as there are tokens and its gradient vanishes over them; attention has a path "
        "of the same length between any two, at a cost that grows with the length.",
        "Vaswani et al. 2017, table 1; Bengio et al. 1994",
        2,
        "recurrence:RECURRENCE",
    ),
    Experiment(
        "likeness",
        "Is it always the like that should be looked at?",
        "Attention without parameters looks at what is alike and cannot do otherwise; where the odd one out is wanted, "
        "looking at the unlike wins; learned queries and keys do both.",
        "Vaswani et al. 2017, section 3.2; lectures on basic self-attention",
        1,
        "lookup:LIKENESS",
    ),
    Experiment(
        "soft-table",
        "How does a look-up in a table become something that learns?",
        "A softmax with a small temperature reads as the table does, but passes on no gradient; a warmer one reads a mixture, "
        "and can be learned through.",
        "Graves et al. 2014, section 3.3.1",
        0.3,
        "lookup:SOFT_TABLE",
    ),
    Experiment(
        "in-context",
        "Does a language model learn a mapping from examples in its prompt, and does a larger one do it better?",
        "With weights that stay as they are, each example in the prompt makes answers better, and the more so the larger "
        "the model.",
        "Brown et al. 2020, sections 1 and 3.9",
        6.5,
        "in_context:IN_CONTEXT",
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = {each.name: each for each in _ALL}


def find_experiment(name: str) -> Experiment:
    """Return the experiment of that name; an unknown one gets the nearest."""
    if name not in EXPERIMENTS:
        raise UsageError(f"no experiment {name}", nearest(name, EXPERIMENTS))
    return EXPERIMENTS[name]
