"""Pretraining on chunk vectors, and on sets of related documents (`document_sets`, for a CDLM)."""
