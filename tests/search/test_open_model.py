"""The model of a command, and the function that finds its sentences."""

from nextlevelbert import NextLevelBertModel, text_sentences

from .conftest import KITCHEN, SEA


def test_which_model(command, books, toy_checkpoint, minilm_path, monkeypatch):
    """--model, the environment variable, the one of the package; or one of another kind."""
    search = ("search", books / "sea.txt", "whales?", "--json")
    assert "my-model" in command(*search, "--model", "my-model").err
    assert "--device" in command(*search, "--device", "cuda:99").err

    [row] = command(*search).json["documents"]
    assert row["chunks"] > 3  # of 16 tokens

    monkeypatch.delenv("NEXTLEVELBERT_MODEL")
    [row] = command(*search).json["documents"]
    assert row["chunks"] == 1

    said = command(*search, "--model", minilm_path)
    assert (said.status, said.out) == (1, "")
    assert "model_type is 'bert'" in said.err


def test_a_chunk_encoder_that_the_checkpoint_does_not_hold(
    command, books, toy_checkpoint, toy_encoder_path, minilm_path, tmp_path
):
    bare = NextLevelBertModel.from_pretrained(toy_checkpoint)
    bare.detach_chunk_encoder()
    bare.save_pretrained(tmp_path / "bare")
    words = (
        "search",
        books,
        "Who hunts?",
        "--json",
        "--model",
        tmp_path / "bare",
        "--chunk_encoder",
    )
    whole = command("search", books, "Who hunts?", "--json").json["passages"]
    assert command(*words, toy_encoder_path).json["passages"] == whole
    said = command(*words, minilm_path)
    assert said.status == 1
    assert "encoder" in said.err


def sentences_outside_the_kitchen(text: str) -> list[tuple[int, int]]:
    if text == KITCHEN:
        return []
    return text_sentences(text)


def test_a_splitter_by_name(command, books, toy_checkpoint, toy_encoder_path, tmp_path):
    search = ("search", books, "whales?", "--json")
    assert "not sentences" in command(*search, "--splitter", "text_sentences").err

    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=64, chunking="sentences"
    )
    model.save_pretrained(tmp_path / "sentences")
    search += ("--model", tmp_path / "sentences", "--splitter")
    rows = command(*search, "text_sentences").json["documents"]
    [sea] = filter(lambda row: row["place"] == "sea.txt", rows)
    assert sea["chunks"] == len(text_sentences(SEA))
    assert "no sentence splitter 'nowhere.splitter'" in command(*search, "nowhere.splitter").err

    splitter = f"{__name__}.{sentences_outside_the_kitchen.__name__}"
    said = command(*search, splitter)
    assert "left out: kitchen.txt: The splitter found no sentence in a text" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}
