"""Ranking documents for queries."""
