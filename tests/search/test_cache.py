"""What searches keep: listed, and removed by name or age."""

import os
import shutil
import time

from nextlevelbert.search.cache import kept_stores
from nextlevelbert.search.encoders.onnx import EXPORTS, MINILM
from nextlevelbert.search.store import ABOUT


def test_what_is_kept_is_listed_with_its_source_model_and_size(command, books, tmp_path):
    command("search", books, "whale")
    command("search", books / "sea.txt", "whale")

    said = command("cache").out
    stores = kept_stores(tmp_path / "cache" / "nextlevelbert")

    assert {store.source for store in stores} == {str(books), str(books / "sea.txt")}
    for store in stores:
        database = (store.folder / "store.sqlite3").stat().st_size
        assert store.size >= database > 100_000
        size = f"{store.size / 1e6:,.1f} MB"
        assert f"{store.source}  {store.model}, {size}, last used 0 days ago" in said
    assert said.endswith(f"of 2 folders in {tmp_path / 'cache' / 'nextlevelbert'}\n")


def test_what_is_kept_of_a_source_is_removed(command, books, tmp_path):
    command("search", books, "whale")
    command("search", books / "sea.txt", "whale")

    said = command("cache", "--remove", books)

    assert said.out.startswith("Removed ")
    [left] = kept_stores(tmp_path / "cache" / "nextlevelbert")
    assert left.source == str(books / "sea.txt")
    assert f"Nothing is kept of {books} in " in command("cache", "--remove", books).err


def test_exports_are_listed_with_their_encoder_and_removed(command, books, tmp_path):
    command("search", books, "whale")
    export = tmp_path / "cache" / "nextlevelbert" / EXPORTS / "0123456789"
    shutil.copytree(MINILM, export)
    os.utime(export)
    sizes = [file.stat().st_size for file in MINILM.iterdir()]
    size = f"{sum(sizes) / 1e6:,.1f} MB"
    name = "sentence-transformers/all-MiniLM-L6-v2"

    said = command("cache").out
    removed = command("cache", "--remove", name).out

    assert not export.exists()
    assert f"01234567  {name}  exported to ONNX, {size}, last used 0 days ago" in said
    assert removed.startswith(f"Removed 01234567  {name}  ")
    [store] = kept_stores(export.parent.parent)
    assert store.source == str(books)


def test_what_was_not_used_for_long_is_removed(command, books, tmp_path):
    command("search", books, "whale")
    command("search", books / "sea.txt", "whale")
    [_, old] = kept_stores(tmp_path / "cache" / "nextlevelbert")
    long_ago = time.time() - 40 * 86_400
    os.utime(old.folder, (long_ago, long_ago))

    command("cache", "--remove_unused", 41)
    assert old.folder.exists()
    command("cache", "--remove_unused", 40)

    assert not old.folder.exists()
    assert len(kept_stores(tmp_path / "cache" / "nextlevelbert")) == 1


def test_a_database_that_cannot_be_read_is_listed(command, books, tmp_path):
    command("search", books, "whale")
    [store] = kept_stores(tmp_path / "cache" / "nextlevelbert")
    (store.folder / "store.sqlite3").write_bytes(b"no database" * 500)

    assert f"  {books}  model, " in command("cache").out

    (store.folder / ABOUT).write_text("{")

    assert "  ?  ?, " in command("cache").out


def test_an_empty_cache(command):
    assert command("cache").out.startswith("0.0 MB of 0 folders in ")
