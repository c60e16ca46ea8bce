"""The options that name the sets of a training."""

from dataclasses import dataclass
from pathlib import Path

from ..data.files import TABLES
from ..training.options import option


@dataclass(kw_only=True)
class DataArguments:
    """Files or splits of a training set, and of sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = option(
        None,
        f"Training set: a table ({', '.join(TABLES)}; all but .parquet also as .gz), a quoted"
        " pattern of tables, or a folder of tables.",
    )
    validation_file: str | None = option(
        None, "Validation set, which selects the epoch (default: rows held out from training)."
    )
    test_file: str | None = option(
        None, "Test set, which is only reported on (default: report on the validation set)."
    )
    dataset_name: str | None = option(None, "Data set on the Hub, instead of --train_file.")
    dataset_config_name: str | None = option(None, "Configuration of the data set on the Hub.")
    train_split: str | None = option(
        None, "Split of the data set or folder to train on (default: train)."
    )
    validation_split: str | None = option(
        None, "Split of the data set or folder to validate on, instead of --validation_file."
    )
    test_split: str | None = option(
        None, "Split of the data set or folder to report on, instead of --test_file."
    )
    validation_share: float = option(
        0.15, "Share of the training set to hold out if there is no validation set."
    )

    def __post_init__(self) -> None:
        if self.train_file is None and self.dataset_name is None:
            raise ValueError(
                "Give the training set, either with --train_file or with --dataset_name."
            )
        for name in ("train", "validation", "test"):
            file = getattr(self, f"{name}_file")
            if self.dataset_name is not None and file is not None:
                raise ValueError(
                    f"--dataset_name names all sets: use --{name}_split instead of --{name}_file."
                )
            has_splits = self.dataset_name is not None or Path(str(self._source(name))).is_dir()
            if getattr(self, f"{name}_split") and not has_splits:
                raise ValueError(
                    f"--{name}_split is for --dataset_name or a folder; give a file with"
                    f" --{name}_file."
                )

    def _source(self, name: str) -> str | None:
        """Returns the data set, file or folder of a set; None if none was given."""
        for source in (getattr(self, f"{name}_file"), self.dataset_name):
            if source is not None:
                return source
        return self.train_file

    def location(self, name: str) -> tuple[str, str] | None:
        """Returns the source of a set: a file, folder or data set, and the split.

        Args:
            name: ``"train"``, ``"validation"`` or ``"test"``.

        Returns:
            Source and split; None for a set that was not given.
        """
        source = self._source(name)
        split = getattr(self, f"{name}_split")
        has_file = getattr(self, f"{name}_file") is not None
        if split is None and (has_file or name == "train"):
            split = "train"
        if source is None or split is None:
            return None
        return source, split
