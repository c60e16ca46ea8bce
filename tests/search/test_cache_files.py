"""Files of the cache, whose names end with their checksum."""

import zlib

import pytest

from nextlevelbert.search.cache_files import CacheError, is_whole, name_by_checksum, writing


def test_a_file_is_whole_as_long_as_it_has_its_checksum(tmp_path):
    (tmp_path / "part.new").write_bytes(b"rows" * 9)

    path = name_by_checksum(tmp_path / "part.new", "part", ".parquet")

    assert path.name == f"part-{zlib.crc32(b'rows' * 9):08x}.parquet"
    assert is_whole(path)
    path.write_bytes(b"rows")
    assert not is_whole(path)
    path.unlink()
    assert not is_whole(path)


def test_an_error_of_writing_names_the_file_and_the_remedy(tmp_path):
    path = tmp_path / "nowhere" / "file"

    message = f"{path} cannot be written: No such file.*--cache_dir"
    with pytest.raises(CacheError, match=message), writing(path):
        path.write_text("")
