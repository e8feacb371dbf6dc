"""The modules that tested code may import, the same on every machine. Pure."""

from __future__ import annotations

from typing import Final

# fmt: off
MODULES: Final = (
    "__future__", "_strptime", "abc", "array", "ast", "asyncio", "atexit", "base64", "binascii",
    "bisect",
    "builtins", "bz2", "calendar", "cmath", "codecs", "collections", "collections.abc", "colorsys",
    "concurrent.futures", "contextlib", "copy", "copyreg", "csv", "ctypes", "dataclasses",
    "datetime", "decimal", "difflib", "dis", "doctest", "email", "email.message", "enum", "errno",
    "fileinput", "fnmatch", "fractions", "functools", "gc", "getopt", "glob", "graphlib", "gzip",
    "hashlib", "heapq", "hmac", "html", "html.parser", "importlib", "importlib.util", "inspect",
    "io", "ipaddress", "itertools", "json", "keyword", "linecache", "locale", "logging", "lzma",
    "marshal", "math", "mmap", "multiprocessing", "numbers", "opcode", "operator", "optparse", "os",
    "os.path", "pathlib", "pickle", "pkgutil", "platform", "posixpath", "pprint", "queue",
    "random", "re", "reprlib", "resource", "sched", "secrets", "select", "selectors", "shlex",
    "shutil", "signal", "socket", "stat", "statistics", "string", "stringprep", "struct",
    "subprocess", "symtable", "sys", "sysconfig", "tempfile", "textwrap", "threading", "time",
    "timeit", "token", "tokenize", "trace", "traceback", "types", "typing", "unicodedata",
    "unittest", "unittest.mock", "urllib.parse", "uuid", "warnings", "weakref",
    "xml.etree.ElementTree", "zipfile", "zlib", "zoneinfo",
    "encodings.aliases", "encodings.ascii", "encodings.charmap", "encodings.cp1252",
    "encodings.hex_codec", "encodings.idna", "encodings.latin_1", "encodings.punycode",
    "encodings.raw_unicode_escape", "encodings.rot_13", "encodings.unicode_escape",
    "encodings.utf_16", "encodings.utf_16_le", "encodings.utf_32", "encodings.utf_8",
    "encodings.utf_8_sig",
    "numpy", "numpy.fft", "numpy.linalg", "numpy.polynomial", "numpy.random",

)
# fmt: on
"""Modules of the standard library that need no disk once they are loaded, and numpy. A module that
is missing on a machine is skipped."""
