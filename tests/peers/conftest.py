"""Leaves a file to the tests of transformers, among which alone it can be imported."""

collect_ignore = ["model_testers.py"]
