"""The colours of the report and the picture: Okabe and Ito's, told apart by colour-blind eyes and on bad projectors.

Charts name colours as CSS variables, so that the page alone decides between light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence

# Blue is Holdfast's. Yellow is left out: on white nobody sees it. The dark set keeps the hues and gains lightness.
LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B7280", "#8C6D1F")
DARK = ("#45A5E6", "#F5813F", "#2EC4A0", "#E6A2C8", "#F0B84A", "#A5DBF9", "#A3ADBA", "#CDB45E")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "pentagon")
DASHES = ("solid", "dash", "dot", "dashdot")
OWN = "holdfast"


def places(peers: Sequence[str]) -> dict[str, int]:
    """Every peer's number in the palette. Plain Holdfast has the first, whoever else runs."""
    others = (number for number in range(1, len(peers) + 1))
    return {peer: 0 if peer == OWN else next(others) for peer in dict.fromkeys(peers)}


def variable(place: int) -> str:
    return f"var(--peer-{place % len(LIGHT)})"


def symbol(place: int) -> str:
    return SYMBOLS[place % len(SYMBOLS)]


def dash(place: int) -> str:
    """Solid, until the colours begin again."""
    return DASHES[place // len(LIGHT) % len(DASHES)]


def declarations(colours: Sequence[str]) -> str:
    return " ".join(f"--peer-{place}: {colour};" for place, colour in enumerate(colours))
