"""Seconds of collectives on a cluster."""
