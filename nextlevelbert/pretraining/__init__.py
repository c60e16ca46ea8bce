"""Pretraining on chunk vectors, and what CDLM's pretraining on sets of documents needs."""

from .document_sets import hold_out_sets, read_document_sets

__all__ = ["hold_out_sets", "read_document_sets"]
