"""One colour a meaning, the same in every figure: what a second or a byte is spent on.

The colours are those of Okabe and Ito (Color Universal Design), which remain distinct under every common form of colour
blindness; yellow, invisible on white, gives way to Tol's olive. Phases differ by hatching, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping

# What things belong to -> (colour, name in legends).
FAMILIES: Mapping[str, tuple[str, str]] = {
    "selection": ("#D55E00", "selection"),
    "indexer": ("#E69F00", "indexer"),
    "attention": ("#0072B2", "attention"),
    "feed_forward": ("#009E73", "experts and feed-forward"),
    "other": ("#56B4E9", "other compute"),
    "communication": ("#CC79A7", "communication"),
    "idle": ("#8C8C8C", "waiting and bubble"),
    "state": ("#999933", "optimizer and weights"),
}

_TERMS: Mapping[str, str] = {
    "selection_forward": "selection",
    "selection_recompute": "selection",
    "index_projections": "indexer",
    "index_loss": "indexer",
    "projections": "attention",
    "moe": "feed_forward",
    "dense_ffn": "feed_forward",
    "waiting": "idle",
    "host_bound": "idle",
    "pp_bubble": "idle",
    "optimizer": "state",
    "offload": "communication",
}
# What new terms of a known kind end with or begin with.
_ENDINGS: Mapping[str, str] = {"_communication_exposed": "communication", "_attention": "attention"}
_BEGINNINGS: Mapping[str, str] = {"sparse_attention": "attention", "selection": "selection", "index_": "indexer"}

_KINDS: Mapping[str, str] = {
    "parameters": "state",
    "gradients": "state",
    "optimizer": "state",
    "activations": "attention",
    "selection_indices": "selection",
    "score_table": "selection",
    "candidates": "selection",
    "gathered_kv": "communication",
    "expert_buffers": "feed_forward",
    "logits": "other",
    "framework": "idle",
}

# Where several kinds of memory share a family, how much of the way to white each is moved.
_TINTS: Mapping[str, float] = {"gradients": 0.35, "optimizer": 0.65, "selection_indices": 0.35, "candidates": 0.65}

# Systems in the order of a scenario: baseline first. Markers differ too.
SYSTEMS = ("#8C8C8C", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#0072B2", "#999933")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x")

VERDICTS: Mapping[str, str] = {"fits": "#009E73", "at_risk": "#E69F00", "does_not_fit": "#D55E00"}


def term_family(term: str) -> str:
    """The family of a term of a step's time; a term nobody foresaw is other compute."""
    if term in _TERMS:
        return _TERMS[term]
    ending = next((family for end, family in _ENDINGS.items() if term.endswith(end)), None)
    return ending or next((family for start, family in _BEGINNINGS.items() if term.startswith(start)), "other")


def kind_family(kind: str) -> str:
    """The family of a kind of memory."""
    return _KINDS.get(kind, "other")


def term_colour(term: str) -> str:
    """The colour of a term."""
    return FAMILIES[term_family(term)][0]


def kind_colour(kind: str) -> str:
    """The colour of a kind of memory: its family's, lighter where the family has several kinds."""
    return tint(FAMILIES[kind_family(kind)][0], _TINTS.get(kind, 0.0))


def hatch(term: str) -> str:
    """The hatching that tells the phase of a term: recomputation and backward; "" forward or all phases."""
    return "/" if term.endswith("_recompute") else "x" if term.endswith("_backward") else ""


def tint(colour: str, share: float) -> str:
    """``colour`` moved towards white by ``share``."""
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(value + (255 - value) * share):02X}" for value in channels)
