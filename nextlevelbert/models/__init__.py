"""What a checkpoint carries: configurations, models, the processor, and all that they need.
Siblings only.
"""
