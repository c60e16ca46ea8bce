"""Holds what all tasks of fine-tuning share."""
