"""What comes on top of the static memory at each moment of a step, by kind.

With full recomputation a layer's tensors exist while that layer is at work; else what the policy stores exists for
every layer in flight, and what it drops comes back for the layer at work.
"""

from __future__ import annotations

import numpy as np

from hyscale_model.arrays import Number
from hyscale_model.families import Anatomy, anatomy
from hyscale_model.families.anatomy import Attention
from hyscale_model.layers.kept import (
    Kept,
    attention_gradients,
    attention_kept,
    feed_forward_gradients,
    feed_forward_kept,
    layer_input_bytes,
)
from hyscale_model.layers.offload import BUFFERED_LAYERS, offloaded_share
from hyscale_model.layers.selection import KEEPS_INDICES
from hyscale_model.layers.sizes import Sizes
from hyscale_model.memory.ends import head_activations, logits_bytes
from hyscale_model.memory.holdings import Stages
from hyscale_model.memory.selection import SelectionBytes, selection_bytes
from hyscale_model.scenario.schema import Scenario

# Kinds that come and go, so that the allocator reserves more than they use.
SCALED_KINDS = ("activations", "selection_indices", "expert_buffers", "logits")


class Moments:
    """Bytes by (moment, kind) in ``at``; ``stored``: activations that wait for their backward, as used."""

    def __init__(self, case: Scenario, sizes: Sizes, stages: Stages, allocator: Number) -> None:
        self.case, self.sizes, self.stages, self.allocator = case, sizes, stages, allocator
        self.full = case.training.recompute == "full"
        self.policy = case.systems[0].recompute_selection
        self.at: dict[tuple[str, str], Number] = {}
        body = self.body = anatomy(case.model)
        self.selections: dict[str, SelectionBytes] = {
            each.kind: selection_bytes(case, sizes, each) for each in body.attentions
        }
        self.kept: dict[str, Kept] = {
            each.kind: attention_kept(case, sizes, each, body) for each in body.attentions
        } | {each.kind: feed_forward_kept(case, sizes, each, body) for each in body.feed_forwards}
        self._stored(body)
        label = len(body.attentions) > 1
        for attention in body.attentions:
            self._attention(attention, self.selections[attention.kind], f" ({attention.kind})" if label else "")
        self._feed_forwards(body)
        head = stages.runs["head"] > 0
        self._moment("output head", head * head_activations(case, sizes, body), self._gathered(None))
        self.at["output head", "logits"] = allocator * head * logits_bytes(case, sizes, body)

    def _restored(self, kind: str) -> Number:
        """Bytes of a block at work that do not exist for every layer in flight."""
        kept = self.kept[kind]
        if not self.full:
            return kept.whole - kept.stored
        # An attention block reads the stored input of its layer itself, unless that is mixed from several streams.
        reads_stored = kind in self.selections and self.body.streams == 1
        return kept.whole - (layer_input_bytes(self.case, self.sizes, self.body) if reads_stored else 0.0)

    def _stored(self, body: Anatomy) -> None:
        """What is held of every layer in flight: activations, indices, score tables, gathered keys."""
        runs, flying = self.stages.runs, self.stages.in_flight
        # A layer that shares a selection is recomputed before the layer that made it, so that one must be kept.
        shared = any(attention.kind == "dsa_shared" for attention in body.attentions)
        keeps = shared or self.policy in KEEPS_INDICES or not self.full
        keeps = keeps and self.case.systems[0].index_storage == "device"
        start = layer_input_bytes(self.case, self.sizes, body)
        # A layer returns what the next one reads. Recomputed, its output is held until its backward has ended: by the
        # checkpoint that gave it to autograd, though nothing reads it (torch.utils.checkpoint with reentrance,
        # Megatron-LM's CheckpointFunction).
        self.returned: Number = start if self.full else 0.0
        self.stored: Number = 0.0
        self.indices: Number = 0.0
        self.tables: Number = 0.0
        self.all_gathered: Number = 0.0
        for attention in body.attentions:
            layers, of = flying * runs[f"{attention.kind}.core"], self.selections[attention.kind]
            stored = start if self.full else self.kept[attention.kind].stored
            if not self.full or self.policy == "skip":
                stored = stored + of.loss
            self.stored = self.stored + layers * stored
            self.indices = self.indices + (layers * of.indices if keeps else (layers > 0) * of.indices)
            if self.full and self.policy == "keep_scores":
                self.tables = self.tables + layers * of.kept_table
            if attention.core.form == "sparse":
                self.all_gathered = self.all_gathered + layers * of.gathered
        if not self.full:
            for ffn in body.feed_forwards:
                self.stored = self.stored + flying * runs[ffn.kind] * self.kept[ffn.kind].stored
        self._offload(start, body)
        self.reserved = self.allocator * self.stored
        self.reserved_indices = self.allocator * self.indices

    def _offload(self, start: Number, body: Anatomy) -> None:
        """Take out what lies in host memory, but for the layers that come and go."""
        share = offloaded_share(self.case)
        self.on_host: Number = share * self.stored
        if not share:
            return
        runs = self.stages.runs
        widest: Number = 0.0
        for attention in body.attentions:
            here = runs[f"{attention.kind}.core"] > 0
            widest = np.maximum(widest, here * (start if self.full else self.kept[attention.kind].stored))
        behind = [(runs[ffn.kind] > 0) * self.kept[ffn.kind].stored for ffn in body.feed_forwards]
        layer = widest if self.full else widest + np.maximum.reduce(np.broadcast_arrays(*behind))
        self.stored = np.minimum(self.stored, (1 - share) * self.stored + share * BUFFERED_LAYERS * layer)

    def _gathered(self, own: Number | None, sparse: bool = True) -> Number:
        """Gathered keys: of all sparse layers in flight without recomputation, else of the layer at work.

        Dense attention gathers again in its backward, whatever is recomputed.
        """
        all_layers = 0.0 if self.full else self.all_gathered
        if own is None or (sparse and not self.full):
            return all_layers
        return all_layers + own

    def _moment(self, name: str, more: Number = 0.0, gathered: Number = 0.0) -> None:
        self.at[name, "activations"] = self.reserved + self.allocator * more
        self.at[name, "selection_indices"] = self.reserved_indices
        self.at[name, "score_table"] = self.tables
        self.at[name, "gathered_kv"] = gathered

    def _attention(self, attention: Attention, of: SelectionBytes, label: str) -> None:
        here = self.stages.runs[f"{attention.kind}.core"] > 0
        own = self._gathered(here * of.gathered, attention.core.form == "sparse")
        block = here * self._restored(attention.kind)
        keeps_tables = self.full and self.policy == "keep_scores"
        for phase in ("forward", "backward") if attention.index else ():
            name = f"{phase}, selection{label}"
            again = phase == "forward" or (self.full and self.policy in ("rerun", "keep_indices"))
            # What is stored of a layer in flight is all of it; of one that is recomputed, what has been made.
            made, kept = block, self.kept[attention.kind]
            if self.full:
                scores = of.loss if phase == "backward" and again else 0.0
                made = block - here * (kept.later + (kept.graph if phase == "forward" else -scores))
            self._moment(name, made + (here * of.topk_outputs if again else 0.0), own)
            if again:
                self.at[name, "candidates"] = here * of.candidates
                if not keeps_tables:
                    self.at[name, "score_table"] = here * of.table
        if attention.index is None:
            self._moment(f"forward, attention{label}", block, own)
        gradients = attention_gradients(self.case, self.sizes, attention, self.body)
        # By then the feed-forward of the same layer has been through its backward.
        freed = 0.0 if self.full else self._least_freed()
        # The index loss and the products behind the core have been through theirs.
        gone = self.kept[attention.kind].behind if self.full else 0.0
        held = own + here * (of.gradients - (of.index_keys if self.full else 0.0))
        self._moment(f"backward, attention{label}", block + here * (gradients + self.returned - freed - gone), held)

    def _least_freed(self) -> Number:
        """Stored bytes of the smallest feed-forward a rank has; 0 where it has none."""
        least: Number = np.inf
        for ffn in self.body.feed_forwards:
            here = self.stages.runs[ffn.kind] > 0
            least = np.minimum(least, np.where(here, self.kept[ffn.kind].stored, np.inf))
        return np.where(np.isfinite(least), least, 0.0)

    def _feed_forwards(self, body: Anatomy) -> None:
        """In the backward pass of a recomputed layer both its blocks' activations are there."""
        runs = self.stages.runs
        widest: Number = 0.0
        gathered: Number = 0.0
        for attention in body.attentions:
            here = runs[f"{attention.kind}.core"] > 0
            widest = np.maximum(widest, here * self._restored(attention.kind))
            if attention.core.form == "sparse":
                gathered = np.maximum(gathered, here * self.selections[attention.kind].gathered)
        for ffn in body.feed_forwards:
            name = "experts" if ffn.kind == "moe" else "feed-forward"
            kind = "expert_buffers" if ffn.kind == "moe" else "activations"
            here = runs[ffn.kind] > 0
            restored = here * self._restored(ffn.kind)
            gradients = here * feed_forward_gradients(self.case, self.sizes, ffn, body)
            for phase, own, more, held in (
                ("forward", restored, 0.0, self._gathered(None)),
                ("backward", restored + gradients + here * self.returned, widest, self._gathered(gathered)),
            ):
                moment = f"{phase}, {name}"
                self._moment(moment, more, held)
                self.at[moment, kind] = self.at.get((moment, kind), 0.0) + self.allocator * own
