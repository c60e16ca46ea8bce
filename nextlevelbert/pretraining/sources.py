"""Opens the documents of a pretraining: files, or a data set of the Hub."""

from collections.abc import Iterator

from ..data.documents import Document, as_documents
from ..data.reading import read_documents
from ..data.tables import hub_dataset
from ..training.runs import logged_run
from .options import DocumentArguments


@logged_run()
def open_documents(
    options: DocumentArguments,
) -> tuple[Iterator[Document] | None, Iterator[Document] | None]:
    """Opens the documents to train on and to evaluate on; None stands for those without a name."""
    columns = (options.text_column, options.id_column)
    documents = None
    if options.dataset_name:
        rows = hub_dataset(
            options.dataset_name,
            options.dataset_config_name,
            split=options.dataset_split,
            streaming=True,
        )
        documents = as_documents(rows, *columns)
    elif options.train_file:
        documents = read_documents(options.train_file, *columns)

    validation_documents = None
    if options.validation_file is not None:
        validation_documents = read_documents(options.validation_file, *columns)

    return documents, validation_documents
