"""Chunk vectors of many documents on disk."""
