"""The indexer's score of a query and a key, the same in every operation."""
