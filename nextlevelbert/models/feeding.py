"""Preparation of the next groups of documents by threads, while a device computes."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")

# Tokenizers and numpy release the interpreter's lock; more threads would wait for it.
_MOST_THREADS = 4


def default_threads() -> int:
    """Returns the number of threads that prepare groups: at most one for every two cores."""
    cores = os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // 2))


def prepare_ahead(
    prepare: Callable[[Item], Prepared], items: Iterable[Item], threads: int
) -> Iterator[Prepared]:
    """Prepares items in threads while the caller works on earlier ones.

    Items are read in the thread of the caller, one more than there are threads ahead of the item
    that the caller works on. If `prepare` or the reading of items fails, the error is raised after
    all earlier items.

    Args:
        prepare: function that prepares an item.
        items: the items.
        threads: number of threads.

    Yields:
        The prepared items, in the order of the items.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="prepare")
    futures = _submitted(pool, prepare, items)
    try:
        waiting = deque(itertools.islice(futures, threads + 1))
        while waiting:
            prepared = waiting.popleft().result()
            waiting.extend(itertools.islice(futures, 1))
            yield prepared
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(
    pool: ThreadPoolExecutor, prepare: Callable[[Item], Prepared], items: Iterable[Item]
) -> Iterator[Future[Prepared]]:
    """Submits items one by one; an error of reading them becomes the last future."""
    try:
        for item in items:
            yield pool.submit(prepare, item)
    except Exception as error:  # raised when its turn comes
        failed: Future[Prepared] = Future()
        failed.set_exception(error)
        yield failed
