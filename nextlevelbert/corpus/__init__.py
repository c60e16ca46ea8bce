"""Corpora of chunk vectors: making the vectors, storing them as Parquet parts, and reading them."""
