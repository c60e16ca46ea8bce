"""Documents that a command line of pretraining names."""

from nextlevelbert.command.pretrain import run
from nextlevelbert.pretraining import pretrain, sources
from nextlevelbert.pretraining.options import DocumentArguments

from ..toys.finetuning import write

HUB = "--dataset_name me/books"


def test_documents_of_a_file_and_of_the_hub_have_the_named_columns(monkeypatch, tmp_path):
    file = write(tmp_path / "held.jsonl", [{"name": "c", "body": "Gulls."}])
    asked = []

    def hub_dataset(*names, **options):
        asked.append((*names, options))
        return [{"name": "a", "body": "The sea."}, {"name": "b", "body": "Ships."}]

    monkeypatch.setattr(sources, "hub_dataset", hub_dataset)
    options = DocumentArguments(
        dataset_name="me/books",
        dataset_config_name="small",
        validation_file=file,
        text_column="body",
        id_column="name",
    )

    documents, validation_documents = sources.open_documents(options)

    assert asked == [("me/books", "small", {"split": "train", "streaming": True})]
    assert [(document.id, document.text) for document in documents] == [
        ("a", "The sea."),
        ("b", "Ships."),
    ]
    assert next(validation_documents).text == "Gulls."
    assert sources.open_documents(DocumentArguments()) == (None, None)


def test_a_pretraining_gets_documents_and_the_card_names_the_data_set(monkeypatch, tmp_path):
    file = write(tmp_path / "books.jsonl", [{"text": "The sea."}])
    monkeypatch.setattr(sources, "hub_dataset", lambda *_, **__: [{"text": "Ships."}])
    seen = []
    monkeypatch.setattr(pretrain, "pretrain", lambda *arguments: seen.append(arguments))

    for argv in (f"--train_file {file}", HUB, f"{HUB} --datasets me/plays"):
        run([*argv.split(), "--output_dir", str(tmp_path / "model"), "--seed", "3"])

    (options, books, _), (hub_options, hub_books, _), (named_options, _, _) = seen
    assert [next(books).text, next(hub_books).text] == ["The sea.", "Ships."]
    assert (options["seed"], options.get("datasets")) == (3, None)
    assert hub_options["datasets"] == ["me/books"]
    assert named_options["datasets"] == ["me/plays"]
    assert {"train_file", "dataset_name", "text_column"}.isdisjoint(hub_options)
