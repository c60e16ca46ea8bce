"""What an output folder of pretraining on chunk vectors belongs to."""

from __future__ import annotations

from typing import Any

from ..corpus import VectorCorpus
from ..corpus.token_corpus import TokenCorpus
from ..models.chunk_encoder import weights_fingerprint
from .arguments import HateArguments, NextLevelBertArguments, PretrainingArguments
from .corpus_arguments import CorpusArguments
from .objective_arguments import MaskingArguments

# Options that do not change the result, or that are told by what they lead to.
_UNSIGNED = {"model", "chunk_encoder", "chunk_encoder_name", "encoder_dtype", "compile_encoder", "attn_implementation"}


def settings_of(
    model_args: NextLevelBertArguments | HateArguments,
    objective_args: MaskingArguments,
    corpus_args: CorpusArguments,
    args: PretrainingArguments,
    model: Any,
    corpus: VectorCorpus | TokenCorpus,
    evaluation: VectorCorpus | TokenCorpus,
) -> dict[str, object]:
    """Everything that determines the result, without paths; the output folder belongs to it."""
    options = {name: value for name, value in vars(model_args).items() if name not in _UNSIGNED}
    continued = getattr(model_args, "model", None)
    return {
        # Those that are left out have the values of the encoder, the checkpoint or the defaults.
        **{name: getattr(model.config, name, None) if value is None else value for name, value in options.items()},
        "chunk_encoder": model.config.chunk_encoder_fingerprint,
        "weights": weights_fingerprint(model.base_model) if continued else None,
        **vars(objective_args),
        "documents": corpus.fingerprint(),
        "vectors": corpus.recipe["encoder"]["dtype"] if isinstance(corpus, VectorCorpus) else "trained",
        **({"splitter": corpus.splitter} if isinstance(corpus, VectorCorpus) and corpus.splitter else {}),
        "validation_share": corpus_args.validation_share,
        "validation_documents": evaluation.fingerprint(),
        **args.training_signature(),
    }
