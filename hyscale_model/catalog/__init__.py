"""Facts with their sources, one YAML file each: models, GPUs, clusters, systems and published results."""

from __future__ import annotations

from hyscale_model.catalog.entry import KINDS, Entry, document, entry, names, path

__all__ = ["KINDS", "Entry", "document", "entry", "names", "path"]
