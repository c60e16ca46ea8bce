"""Toy models, texts, files and rows: one module for each kind, built in code."""
