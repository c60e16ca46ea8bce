"""Configurations, models and the processor, with all that a saved checkpoint needs.

These files import their siblings only.
"""
