"""Reads documents, and rows of labelled tasks."""
