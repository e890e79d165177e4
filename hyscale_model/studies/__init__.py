"""Many predictions at once: sweeps over fields of a scenario, and the search for the best layout."""
