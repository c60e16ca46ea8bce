"""Encoders of texts and questions for a search: static, by ONNX Runtime, or in torch."""
