"""Compiles the modules that a file lists, parted by zero bytes.

What does not compile is left to fail where it is imported.
"""

import functools
import os
import py_compile
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Starting helpers takes as long as compiling so many.
FEW = 64

# Never compared with its source again: an environment does not change, and a copy of the same source has another time.
compile_one = functools.partial(
    py_compile.compile, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
)

paths = Path(sys.argv[1]).read_text(encoding="utf-8").split("\0")

if len(paths) <= FEW:
    for path in paths:
        compile_one(path)
else:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(compile_one, paths, chunksize=FEW):
            pass
