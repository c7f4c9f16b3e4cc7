"""CRC-32C (Castagnoli) of any buffer, by the C extension of the `crc32c` package.

The package's `__init__` asks importlib.metadata for its own version and imports a command line,
which costs 30 to 60 ms, a fifth of a cold start. Its extension module stands alone and loads in
under a millisecond, so it is loaded by its file. Where that does not work (another layout of the
package) the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any, cast


def _extension() -> Any:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        spec = PathFinder.find_spec("crc32c._crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import crc32c as fallback

    return fallback


_crc32c: Callable[..., int] = cast(Callable[..., int], _extension().crc32c)


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C of `data`, continuing from `value` (the CRC of what came before it).

    28 GB/s here, so the GIL is kept: a megabyte takes 40 us, and getting the GIL back from a busy
    thread can take 5 ms.
    """
    return _crc32c(data, value, 0)
