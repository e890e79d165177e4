"""A task whose answers lie far back: recall what stood beside a key.

A document has entries, each a key with a value, then tokens of no use, then questions, each a key alone; the answer is
the key's value in this document. Which value belongs to a key is drawn anew for every document, so nothing but the
entries tells it. Some tokens in a row have the same key, as text stays with its subject: neighbours then select much
the same, as in trained models. In a document longer than ``near`` no entry is among the ``near`` tokens before a
question: attention that reads no more than ``near`` keys answers only if far ones are selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from hyscale_kernels.spans import causal_spans

ENTRY, REST, QUESTION = range(3)
# Rows of entries that a key of a document has on average, or more.
LEAST_ROWS = 4
# Of cross_entropy: no answer is asked for.
NO_ANSWER = -100


class Batch(NamedTuple):
    """Tokens of one sequence, one document behind another.

    Attributes:
        parts: int64 ``[n, 3]``, rows of the embedding that make up a token: its key, its value, what kind it is.
        answers: int64 ``[n]``, the row of the value, ``NO_ANSWER`` of all but questions.
        spans: int32 ``[n, 2]``, what each token sees: its document as far as itself.
    """

    parts: torch.Tensor
    answers: torch.Tensor
    spans: torch.Tensor

    def answered(self, selected: torch.Tensor) -> torch.Tensor:
        """Share of the questions to which an entry with their key was selected, a tensor that waits for nothing.

        Args:
            selected: int32 ``[n, k]``, -1 for none.
        """
        keys, kinds = self.parts[:, 0], self.parts[:, 2]
        entry = kinds == kinds[0]
        places = selected.clamp(min=0)
        hits = (keys[places] == keys[:, None]) & entry[places] & (selected >= 0)
        asked = self.answers != NO_ANSWER
        return (hits.any(1) & asked).sum() / asked.sum()

    def to(self, device: torch.device | str) -> Batch:
        """On another device."""
        return Batch(*(each.to(device) for each in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The task.

    Attributes:
        tokens: of a sequence; keys, values: there are.
        near: tokens before a question that hold no entry, unless a document is no longer than that.
        row: tokens in a row that have the same key.
        seed: of everything that is drawn.
    """

    tokens: int
    keys: int
    values: int
    near: int
    row: int
    seed: int = 0

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding: keys, values, no value, and kinds of tokens."""
        return self.keys + self.values + 1 + 3

    def batch(self, step: int, document: int) -> Batch:
        """The sequence of a step, cut into documents of so many tokens; the same for every system and device.

        Raises:
            ValueError: documents that do not fill the sequence, or have no room for entries.
        """
        half = document // 2
        entries = half - (self.near if document > self.near else 0)
        rows = entries // self.row
        if document < 1 or self.tokens % document or half % self.row or self.near % self.row or rows < LEAST_ROWS:
            raise ValueError(
                f"documents of {document} tokens must fill a sequence of {self.tokens}, and {LEAST_ROWS} rows of "
                f"{self.row} tokens the first half of each, {half} tokens less {self.near} if a document is longer"
            )
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        documents, among = self.tokens // document, min(self.keys, rows // LEAST_ROWS)
        belongs = torch.randint(self.values, (documents, self.keys), generator=draw)
        chosen = torch.rand(documents, self.keys, generator=draw).argsort(1)[:, :among]
        places = torch.randint(among, (documents, document // self.row), generator=draw)
        # Every key that may be asked for has an entry.
        places[:, :among] = torch.arange(among)
        places = places.repeat_interleave(self.row, dim=1)
        kinds = torch.full((document,), QUESTION)
        kinds[:half], kinds[:entries] = REST, ENTRY
        keys = chosen.gather(1, places)
        values = self.keys + belongs.gather(1, keys)
        none = self.keys + self.values
        parts = torch.stack(
            [keys, values.where(kinds == ENTRY, none), (none + 1 + kinds).expand(documents, document)], dim=-1
        )
        tokens = torch.arange(self.tokens)
        return Batch(
            parts.flatten(0, 1),
            values.where(kinds == QUESTION, NO_ANSWER).flatten(),
            causal_spans(tokens, segment_starts=tokens // document * document),
        )
