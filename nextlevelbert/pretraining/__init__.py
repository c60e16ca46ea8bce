"""Pretraining on chunk vectors (`vectors`), or of a CDLM on sets of documents (`cdlm`)."""
