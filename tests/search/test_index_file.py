"""The file of an index: read by safetensors, too, and mapped without being read."""

import numpy as np
from safetensors.numpy import load_file

from nextlevelbert.search.index_file import Column, column, map_arrays, write_arrays


def test_arrays_are_what_safetensors_reads(tmp_path):
    path = tmp_path / "index.safetensors"
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    arrays = {
        "borders": np.array([0, 2, 2**40]),
        "pieces": rows,
        "passages": np.array([3, 1], np.int32),
        "nothing": np.zeros((0, 3), np.float32),
        "bytes": np.frombuffer(b"words", np.uint8),
    }
    columns = {name: column(array) for name, array in arrays.items()}
    columns["pieces"] = Column(np.float32, (4, 3), iter([rows[:1], rows[1:]]))

    write_arrays(path, columns)

    mapped = map_arrays(path)
    read = load_file(path)
    assert mapped.keys() == read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(mapped[name], array)
        np.testing.assert_array_equal(read[name], array)
        assert mapped[name].dtype == array.dtype
        assert mapped[name].flags.aligned
        assert not mapped[name].flags.writeable
