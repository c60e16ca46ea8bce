"""Picking the sentences of a summary."""
