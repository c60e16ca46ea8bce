"""Reads the sets of a task from the files or splits that a command line names."""

import logging

from ..data.labelled import Columns, load_choices, load_classes, read_label_names
from ..data.sets import distinct_texts, hold_out_documents, source_of
from ..data.tables import open_rows
from .options import ColumnArguments, DataArguments
from .run import Sets

logger = logging.getLogger(__name__)


def read_sets(
    task: str,
    data: DataArguments,
    options: ColumnArguments,
    *,
    label_names_file: str | None = None,
    seed: int,
) -> Sets:
    """Reads the sets of a task, and logs their sizes.

    Args:
        task: ``"classification"`` or ``"multiple_choice"``.
        data: sources of the sets.
        options: names of the columns.
        label_names_file: file with the names of the classes, see `read_label_names`.
        seed: seed of the random choice of documents to hold out, if there is no validation set.

    Returns:
        The sets by name: ``train``, ``validation``, and perhaps ``test``.

    Raises:
        ValueError: for a training or validation set without labels.
    """
    columns = Columns(
        text=options.text_column,
        question=options.question_column,
        label=options.label_column,
        id=options.id_column,
    )
    class_names = None
    if label_names_file:
        class_names = read_label_names(label_names_file)

    sets: Sets = {}
    for name in ("train", "validation", "test"):
        location = data.location(name)
        if location is None:
            continue
        table = open_rows(*location, data.dataset_config_name)
        if task == "multiple_choice":
            sets[name] = load_choices(table, columns)
        else:
            sets[name] = load_classes(table, columns, class_names, like=sets.get("train"))

    if "validation" not in sets:
        sets["train"], sets["validation"] = hold_out_documents(
            sets["train"], data.validation_share, seed
        )

    training_texts = set(sets["train"]["text"])
    for name, dataset in sets.items():
        documents = distinct_texts(dataset)
        source = source_of(dataset)
        logger.info(
            "%s: %d examples, %d documents (%s)", name, len(dataset), len(documents), source
        )
        if name != "test" and "label" not in dataset.features:
            raise ValueError(f"The {name} set has no labels ({source}); give one with labels.")
        shared = training_texts.intersection(documents)
        if name != "train" and shared:
            logger.warning(
                "%d texts of the %s set are in the training set, too.", len(shared), name
            )

    return sets
