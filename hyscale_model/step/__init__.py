"""From operations and transfers to the time of a step: blocks, pipeline, totals."""
