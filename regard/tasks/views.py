"""Views of a model besides its attention: one table, which function makes each, which models have it, what it may be told.

view_of(predictor, "states", "a man rides a bike", material=material)
views_of(predictor)                                   the names of the views that make sense of a model
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.errors import Advice, Option, UsageError, nearest
from regard.plugins import imported

if TYPE_CHECKING:
    from regard.look.shown import Shown
    from regard.predictor import Predictor


@dataclass(frozen=True)
class View:
    """One view: functions as "module:name", imported when they are called."""

    make: str  # (predictor, text or picture, **what it takes) -> what is shown
    has: str  # (predictor) -> whether the view makes sense of it
    takes: tuple[str, ...] = ()


VIEWS = {
    "states": View(
        "regard.inspect.states:states_of", "regard.inspect.states:has_states", ("second", "material", "layer")
    ),
    "features": View("regard.tasks.see:features_of", "regard.tasks.see:has_features", ("layer", "place")),
    "positions": View("regard.inspect.positions:positions_of", "regard.inspect.positions:has_positions"),
    "routing": View("regard.inspect.routing:routing_of", "regard.inspect.routing:has_experts", ("second",)),
    "beam": View("regard.inspect.writing:beam_of", "regard.inspect.writing:searches", ("beam",)),
    "roll": View("regard.inspect.roll:roll_of", "regard.inspect.roll:has_notes", ("layer", "head", "word")),
    "pixels": View(
        "regard.tasks.generate.paint:pixels_of", "regard.inspect.pixels:has_pixels", ("layer", "head", "word")
    ),
    "outputs": View("regard.inspect.writing:outputs_of", "regard.inspect.writing:searches", ("second",)),
}


def views_of(predictor: Predictor) -> tuple[str, ...]:
    """The names of the views that make sense of a model."""
    return tuple(name for name, view in VIEWS.items() if imported(view.has)(predictor))


def check_view(name: str, given: dict[str, Any]) -> None:
    """Refuse a view that there is not, and what it cannot be told; `given` has None for what nobody said."""
    if name not in VIEWS:
        raise UsageError(f"nothing is shown as {name}", nearest(name, VIEWS))
    for option, value in given.items():
        if value is not None and option not in VIEWS[name].takes:
            told = "on" if option == "material" else option
            raise UsageError(Advice(Option(told), " says nothing of ", Option("form", name)), "leave it out")


def view_of(predictor: Predictor, name: str, text: str, **given: Any) -> Shown:
    """Make one view of a text or a picture; a model of which it makes no sense is refused with the views that it has."""
    check_view(name, given)
    if not imported(VIEWS[name].has)(predictor):
        own = views_of(predictor)
        has = f"it has {', '.join(own)}" if own else "it has none of these views"
        raise UsageError(f"a {predictor.config.model.kind} to {predictor.config.task} has no {name} to see", has)
    shown: Shown = imported(VIEWS[name].make)(predictor, text, **{k: v for k, v in given.items() if v is not None})
    return shown
