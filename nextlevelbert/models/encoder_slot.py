"""The chunk encoder of a document model: the model holds an encoder, or borrows one."""

from pathlib import Path

from .checkpoints import NextLevelPreTrainedModel
from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder
from .from_encoder import load_chunk_encoder
from .static_encoders import new_chunk_encoder


class EncoderSlotMixin(NextLevelPreTrainedModel):
    """Holds the frozen encoder of chunks, or borrows the one that the configuration names.

    Attributes:
        chunk_encoder: an encoder that is a module of the model and part of its checkpoint; None if
            the model borrows its encoder.
        borrowed_encoder: the encoder of that name, which is loaded when text arrives. It is no
            module of the model, and is never saved and never trained.
    """

    chunk_encoder: ChunkEncoder | None
    borrowed_encoder: LoadedChunkEncoder | None

    def new_chunk_encoder(self) -> ChunkEncoder:
        """Makes the frozen encoder of single chunks, with random weights."""
        config = self.config
        return new_chunk_encoder(
            config.chunk_encoder_config,
            pooling=config.chunk_encoder_pooling,
            normalize=config.chunk_encoder_normalize,
        )

    def attach_chunk_encoder(self, loaded: LoadedChunkEncoder) -> None:
        """Makes the chunk encoder part of the model and of its checkpoint.

        Raises:
            ValueError: `loaded` is not the encoder that the model was made with.
        """
        self.check_chunk_encoder(loaded)
        if self.chunk_encoder is None:
            self.chunk_encoder = self.new_chunk_encoder().to(self.device, self.dtype)
        self.chunk_encoder.load_state_dict(loaded.encoder.state_dict())
        self.borrowed_encoder = None
        self.config.include_chunk_encoder = True
        self.tokenizer = loaded.tokenizer

    def detach_chunk_encoder(self) -> LoadedChunkEncoder:
        """Removes the frozen encoder, so that not every checkpoint of a run holds a copy."""
        encoder = self.get_chunk_encoder()
        config = self.config
        self.chunk_encoder = None
        config.include_chunk_encoder = False
        # The stored fingerprint first: weights in half precision have another one.
        return LoadedChunkEncoder(
            encoder=encoder,
            tokenizer=self.tokenizer,
            name=config.chunk_encoder_name or "the model's own chunk encoder",
            fingerprint=config.chunk_encoder_fingerprint or encoder.fingerprint(),
            prompts=config.encoder_prompts(),
        )

    def check_chunk_encoder(self, loaded: LoadedChunkEncoder) -> None:
        """Checks that a chunk encoder is the one that the model was made with.

        Raises:
            ValueError: weights, pooling or normalisation of the encoder differ.
        """
        # A `CachedEncoder` computes with an encoder that may be the model's own. In half precision
        # its weights have another fingerprint.
        encoder = getattr(loaded, "cached", loaded.encoder)
        expected = self.config.chunk_encoder_fingerprint
        if encoder is not self.chunk_encoder and expected and loaded.fingerprint != expected:
            raise ValueError(
                "chunk_encoder_fingerprint: the model was made with the encoder"
                f" {self.config.chunk_encoder_name} ({expected[:12]}…), but this one is"
                f" {loaded.name} ({loaded.fingerprint[:12]}…)."
            )

    def get_chunk_encoder(self) -> ChunkEncoder:
        """Returns the frozen encoder: the model's own, or the borrowed one.

        Raises:
            ValueError: the model holds no encoder, and its configuration does not name one by name
                and fingerprint.
        """
        if self.chunk_encoder is not None:
            return self.chunk_encoder
        if self.borrowed_encoder is None:
            self.borrowed_encoder = self._load_named_encoder()
        return self.borrowed_encoder.encoder.to(self.device, self.dtype)

    def _load_named_encoder(self) -> LoadedChunkEncoder:
        """Loads the encoder that the configuration names, and checks its fingerprint."""
        name = self.config.chunk_encoder_name
        # Without a fingerprint it could be any encoder.
        if not name or not self.config.chunk_encoder_fingerprint or Path(name).exists():
            raise ValueError(
                f"This checkpoint holds no chunk encoder, and its chunk_encoder_name {name!r}"
                " is not on the Hub, or has no fingerprint: use"
                " attach_chunk_encoder(load_chunk_encoder(path)) or --chunk_encoder."
            )

        # The other arguments name the checkpoint of this model.
        loading = {
            key: self._loaded_with[key]
            for key in ("cache_dir", "local_files_only")
            if key in self._loaded_with
        }
        loaded = load_chunk_encoder(name, pooling=self.config.chunk_encoder_pooling, **loading)
        self.check_chunk_encoder(loaded)
        return loaded
