"""`regard cost`: operations, seconds, energy, money and CO2 of a run, or of a published model on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from regard.bench.published import PUBLISHED, PaperCost, paper_cost, published
from regard.cli.model import check_model, choose_device
from regard.cli.options import AsJson, Device, given
from regard.cli.output import print_json, print_table, say
from regard.config import check
from regard.errors import UsageError, nearest
from regard.runs import shipped_bundles
from regard.training.energy import Bill, Prices
from regard.training.stopwatch import duration

if TYPE_CHECKING:
    from regard.bench.cost import RunCost

LIST = "list"
Show = Callable[[float], str]
PREFIXES = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cost(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The folder of a run or a bundle; a published model such as gpt-3; or list.",
            show_default=False,
        ),
    ],
    watts: Annotated[
        float | None,
        typer.Option(metavar="W", help="Rated power of the processor.", show_default="by its name, or 5 W a core"),
    ] = None,
    electricity: Annotated[
        float | None, typer.Option(metavar="PRICE", help="Dollars a kWh.", show_default="0.165, U.S. households 2024")
    ] = None,
    carbon: Annotated[
        float | None, typer.Option(metavar="GRAMS", help="Grams of CO2 a kWh.", show_default="480, the world 2023")
    ] = None,
    machine: Annotated[
        float | None,
        typer.Option(metavar="PRICE", help="Dollars an hour for the machine.", show_default="0, one's own"),
    ] = None,
    overhead: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", help="Energy in all for each that computes (cooling, supply).", show_default="1"
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """What training a model cost, or a published one on paper: operations by layer, time, energy, money, CO2."""
    asked = given(watts=watts, electricity=electricity, carbon=carbon, machine=machine, overhead=overhead)
    prices = check(Prices, asked, "prices")
    if what == LIST:
        found = [paper_cost(each, prices) for each in PUBLISHED.values()]
        print_json([each.data() for each in found]) if as_json else print_list(found)
    elif what in PUBLISHED and what not in shipped_bundles():
        paper = paper_cost(published(what), prices)
        print_json(paper.data()) if as_json else print_paper(paper)
    else:
        run_cost = _of_run(what, prices, device)
        print_json(run_cost.data()) if as_json else print_run(run_cost)


def _of_run(run: str, prices: Prices, device: str) -> RunCost:
    try:
        check_model(run, device)
    except UsageError as error:
        hint = nearest(run, PUBLISHED)
        raise UsageError(str(error), f"{hint}; {LIST} names the published models") if hint else error from error
    chosen = choose_device(device)
    from regard.bench.cost import cost_of

    return cost_of(run, prices, chosen)


# --- Printing


def print_list(found: list[PaperCost]) -> None:
    columns = ("model", "parameters", "stated", "a token", "training", "stated in paper", "source")
    rows = [
        (
            each.model.name,
            f"{each.parameters / 1e6:,.1f}M",
            _stated(each, "parameters", lambda value: f"{value / 1e6:,.0f}M"),
            operations(each.forward),
            "" if each.training is None else f"{each.training:.2e}",
            _stated(each, "training", lambda value: f"{value:.2e}"),
            each.model.source.partition(",")[0],
        )
        for each in found
    ]
    print_table(columns, rows, right=columns[1:-1], stack=True)
    say("operations are floating-point: forward of one token, and of the whole training; regard cost NAME tells more")


def print_paper(found: PaperCost) -> None:
    model = found.model
    config = model.config.model_dump()
    layers = config.get("layers") or f"{config['encoder_layers']} + {config['decoder_layers']}"
    print(f"{model.title} ({model.source})")
    sizes = (
        f"{layers} layers, width {config['width']:,}, {config['heads']} heads, feed-forward {config['feed_forward']:,}"
    )
    print(f"{sizes}, vocabulary {model.vocabulary:,}, context {model.context:,}\n")
    device = model.device.name if model.device else ""
    rows = [
        _line(found, "parameters", found.parameters, lambda value: f"{value:,.0f}"),
        _line(found, "forward, a token", found.forward, operations),
        _line(found, "training", found.training, lambda value: f"{value:.3g} operations"),
        _line(found, "6 N D", found.rule, lambda value: f"{value:.3g} operations"),
        _line(found, f"hours of one {device}", found.device_hours, lambda value: f"{value:,.0f}", "device_hours"),
        _line(found, "energy", found.kilowatt_hours, lambda value: f"{value:,.0f} kWh", "kilowatt_hours"),
        _line(found, "CO2", found.grams, mass, "grams"),
        _line(found, "money", found.dollars, lambda value: f"{value:,.0f} dollars", "dollars"),
    ]
    print_table(("", "on paper", "stated", "where"), [row for row in rows if row[1]], right=("on paper", "stated"))
    print()
    for note in (*model.notes, *([f"{device}: {model.device.source}"] if model.device else [])):
        say(note)
    if found.grams is not None:
        say(f"assumed: {found.prices.carbon:g} g of CO2 a kWh (--carbon), an hour's price of the device (--machine)")


def _line(found: PaperCost, name: str, value: float | None, shown: Show, key: str = "") -> tuple[str, ...]:
    stated = found.model.stated.get(key or name)
    told = ("", "") if stated is None else (shown(stated.value), stated.source)
    return name, "" if value is None else shown(value), *told


def _stated(found: PaperCost, name: str, shown: Show) -> str:
    return shown(found.model.stated[name].value) if name in found.model.stated else ""


def print_run(found: RunCost) -> None:
    print(f"{found.kind} to {found.task}, {found.parameters:,} parameters; counted on {found.counted_on}\n")
    columns, whole = ("layer", "forward", "training", "share"), max(1.0, found.training)
    each = [
        (row.path or "(itself)", operations(row.forward), operations(row.training), f"{row.training / whole:.1%}")
        for row in found.blocks()
        if row.training
    ]
    rows = [*each, ("in all", operations(found.forward), operations(found.training), "")]
    print(f"floating-point operations for one of the {found.unit}")
    print_table(columns, rows, right=columns[1:])
    if found.bill is None:
        say("a bundle does not tell how long it learned: name the folder of its run for seconds, energy and money")
        return
    print(f"\n{found.steps:,} updates, {found.learned:,} {found.unit}: {operations(found.operations)} in all")
    rate = found.operations / max(1e-9, found.bill.seconds)
    print(f"{bill_line(found.bill)}; {operations(rate)} a second, validations included")
    say(f"energy: {found.bill.how}")
    prices = found.bill.prices
    say(
        f"assumed: {prices.electricity:g} dollars a kWh (--electricity), {prices.carbon:g} g of CO2 a kWh (--carbon), "
        f"{prices.machine:g} dollars an hour of the machine (--machine), overhead {prices.overhead:g} (--overhead)"
    )


def bill_line(found: Bill) -> str:
    """Time, energy, money and CO2 in one line."""
    parts = duration(found.seconds), energy(found.joules), f"{found.dollars:.2g} dollars", f"{mass(found.grams)} of CO2"
    return ", ".join(parts)


def operations(count: float) -> str:
    """A number of floating-point operations: 3.14 ZFLOP."""
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if count >= size), (1.0, ""))
    return f"{count / size:.3g} {prefix}FLOP"


def energy(joules: float) -> str:
    return f"{joules / 3.6e6:,.3g} kWh" if joules >= 3.6e5 else f"{joules / 3600:.2g} Wh"


def mass(grams: float) -> str:
    for size, unit in ((1e6, "t"), (1e3, "kg")):
        if grams >= size:
            return f"{grams / size:,.4g} {unit}"
    return f"{grams:.2g} g"
