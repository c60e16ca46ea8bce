"""Searching and embedding a folder of documents; `nextlevelbert_command` has the options."""
