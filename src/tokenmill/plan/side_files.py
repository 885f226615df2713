"""Files that tools write beside data: known by their names, and skipped without a word.

A name is enough for what no tool uses for data. Others may be the name of somebody's data: they are skipped only if
what is in them cannot be read as such.
"""

from __future__ import annotations

import os
import re

from tokenmill.storage.base import Reading

# Of Spark, Hadoop and their databases: marks, checksums, and Parquet footers of other files. Of publishers: what is to
# be read by people.
_NEVER_DATA = re.compile(
    r"(checksums?|md5sums?|sha\d+sums?)\.txt|_success|_metadata|_common_metadata|_(committed|started)_\w*\d|.*\.crc|\.gitattributes"
    r"|(readme|licen[cs]e|copying|notice|citation|changelog)(([-_]\w+)*\.(md|rst|html?|pdf|org|adoc|cff))?"
)
_LOGS = {"_delta_log", "_spark_metadata"}
# Descriptions of Hugging Face datasets, checksums.
_NOTE = re.compile(
    r"dataset_(dict|info|infos)\.json|checksums?|md5sums?|sha\d+sums?|.*\.(md5|sha1|sha256|sha512)(sums?)?"
)
_STATE = "state.json"
_CACHE = re.compile(r"cache-[0-9a-f]{16}(_\d{5}_of_\d{5})?\.arrow")


def is_never_data(name: str) -> bool:
    """Whether a file of this name is none to read, whatever is in it."""
    *folders, base = name.lower().split("/")
    return _NEVER_DATA.fullmatch(base) is not None or not _LOGS.isdisjoint(folders)


def is_note(inputs: Reading, name: str) -> bool:
    """Whether a file that cannot be read as data is a description of the data beside it."""
    base = os.path.basename(name).lower()
    if base == _STATE:  # of Hugging Face datasets, but many others may call a file so
        return _has_arrow_files(inputs, os.path.dirname(name))
    return _NOTE.fullmatch(base) is not None


def _has_arrow_files(inputs: Reading, folder: str) -> bool:
    try:
        return any(entry.name.endswith(".arrow") for entry in inputs.list(folder))
    except OSError:
        return False


def is_cache(name: str) -> bool:
    """Whether Hugging Face datasets computed a file from others."""
    return _CACHE.fullmatch(os.path.basename(name)) is not None
