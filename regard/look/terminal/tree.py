"""A beam search as text: a line for each stretch of tokens in which nothing branches, indented by what it goes on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.text import Text

from regard.look.labels import visible, visible_title
from regard.look.written import BeamTree, Place

STYLES = {"ended": "green", "dropped": "dim", "alive": ""}
WINS = "bold cyan"


def draw_tree(tree: BeamTree, width: int, colored: bool) -> Text:
    """Title, branches, and what the signs mean."""
    children, winner = tree.children(), set(tree.path(tree.winner))
    lines = [Text(visible_title(tree.title), style="bold"), Text()]
    first = children.get(None, [])
    for number, place in enumerate(first):
        lines += _branch(tree, children, winner, place, "", last=number == len(first) - 1)
    lines += [
        Text(),
        Text("★ the winner   ■ ended, with its score   ✗ dropped   (…) log-probability so far", style="dim"),
    ]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _branch(
    tree: BeamTree,
    children: Mapping[Place | None, list[Place]],
    winner: set[Place],
    place: Place,
    indent: str,
    *,
    last: bool,
) -> Iterator[Text]:
    """The tokens up to where something branches or ends, then each branch below them."""
    run = [place]
    while len(children.get(run[-1], ())) == 1:
        run += children[run[-1]]
    line = Text(indent + ("└─ " if last else "├─ "), style="dim")
    for number, each in enumerate(run):
        node = tree.steps[each[0]][each[1]]
        line.append((" " if number else "") + visible(node.label), style=WINS if each in winner else STYLES[node.state])
    yield line.append_text(_end(tree, run[-1], winner))
    below = children.get(run[-1], [])
    for number, each in enumerate(below):
        deeper = indent + ("   " if last else "│  ")
        yield from _branch(tree, children, winner, each, deeper, last=number == len(below) - 1)


def _end(tree: BeamTree, place: Place, winner: set[Place]) -> Text:
    """The sign of what became of a stretch, and its number."""
    node = tree.steps[place[0]][place[1]]
    if node.score is not None:
        return Text(
            f"  {'★' if place == tree.winner else '■'} {node.score:.3f}", style=WINS if place in winner else "green"
        )
    return Text(f"  {'✗ ' if node.state == 'dropped' else ''}({node.total:.2f})", style="dim")
