"""Holds what pretraining and fine-tuning share."""
