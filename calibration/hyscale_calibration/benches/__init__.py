"""Benchmarks, one module an operation; results are rows of one JSON form (see ``record``)."""
