"""Selection replay: a recomputed forward is given the indices of the forward that it repeats."""

from hyscale_kernels.checkpoint.tape import SelectionReplayError, SelectionTape, checkpoint_contexts, select_once

__all__ = ["SelectionReplayError", "SelectionTape", "checkpoint_contexts", "select_once"]
