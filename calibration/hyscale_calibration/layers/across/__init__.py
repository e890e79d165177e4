"""Layers shared by context-parallel ranks with real collectives: ``torchrun ... -m hyscale_calibration.layers --cp``.

``gathered`` brings the keys of other ranks, ``check`` compares a layer of several ranks with one process, ``measure``
times it, ``exposure`` tells from a trace what collectives showed, ``command`` runs it all. Importing this package
imports nothing.
"""
