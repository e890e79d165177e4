"""Benchmarks of kernels, one module an operation: ``python -m hyscale_calibration.benches --list``.

To add one, write ``<name>.py`` with an ``OPERATION`` (see ``operation``; ``score_table`` is an example) and put its
name into ``registry.NAMES``. The module imports torch, Triton and kernels inside its functions, so that listing
operations and reading arguments needs none of them.
"""
