"""Frames that say nothing of who decided to allocate: standard libraries, and wrappers of allocators."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import cache

from sheaf.commands.profile.symbols import is_library

# Functions by their shortened names; * stands for any characters.
WRAPPERS = (
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "strdup",
    "strndup",
    "operator new*",
    "[xz]malloc*",
    "[xz]calloc*",
    "[xz]realloc*",
    "[xz]strdup*",
    "ztrymalloc*",
    "ztrycalloc*",
    "ztryrealloc*",
    "[xp]alloc",
    "xmemdup*",
    "safe_malloc*",
    "safe_calloc*",
    "safe_realloc*",
    "safemalloc",
    "safecalloc",
    "saferealloc",
    "Perl_safesysmalloc",
    "Perl_safesyscalloc",
    "Perl_safesysrealloc",
    "g_malloc*",
    "g_try_malloc*",
    "g_realloc*",
    "g_try_realloc*",
    "g_slice_alloc*",
    "g_strdup*",
    "g_memdup*",
    "_PyMem_*",
    "PyMem_*",
    "_PyObject_Malloc*",
    "_PyObject_Calloc*",
    "_PyObject_Realloc*",
    "_PyObject_GC_*",
    "_PyObject_New*",
    "PyType_GenericAlloc",
    "default_malloc",
    "default_calloc",
    "default_realloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "PyDataMem_*",
    "CRYPTO_*alloc",
    "CRYPTO_*dup",
    "ruby_xmalloc*",
    "ruby_xcalloc*",
    "ruby_xrealloc*",
    "rb_xmalloc*",
    "objspace_x*alloc*",
    "_emalloc*",
    "_ecalloc",
    "_erealloc*",
    "__zend_malloc",
    "__zend_calloc",
    "__zend_realloc",
    "pg_malloc*",
    "ngx_alloc",
    "ngx_calloc",
    "av_malloc*",
    "av_mallocz*",
    "av_calloc",
    "av_realloc*",
    "xmlMalloc",
    "uv__malloc",
    "uv__calloc",
    "uv__realloc",
    "sqlite3Malloc*",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "sqlite3_malloc*",
    "__rust_alloc*",
    "__rdl_*alloc*",
    "je_*alloc*",
    "mi_*alloc*",
    "tc_*alloc*",
)


@cache
def _pattern(more: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(one) for one in (*WRAPPERS, *more)))


def folded(names: Sequence[str], more: tuple[str, ...] = ()) -> list[str]:
    """
    The names of a stack, the innermost first, from the first one on that is neither of a standard library nor a wrapper of an
    allocator; `more` are patterns of the user. All of them, if there is no other.
    """
    pattern = _pattern(more)
    begin = next((i for i, name in enumerate(names) if not is_library(name) and not pattern.match(name)), 0)
    return list(names[begin:])
