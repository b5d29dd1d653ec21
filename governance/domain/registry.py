"""The register of categories. Upper floors fill it from `AppConfig.ready()`, as apps register with Django's admin."""

import hashlib
from graphlib import CycleError, TopologicalSorter

from governance.domain.category import (
    BUCKETS,
    CHUNK_ROWS,
    BlobPrefix,
    CachePrefix,
    Category,
    Chunk,
    Counts,
    Drift,
    EndsAfter,
    Erased,
    File,
    Held,
    LogStream,
    NoLimit,
    Processing,
    Queue,
    Sample,
    Scope,
    Spare,
    SpoolDir,
    Store,
    Table,
    VectorColumn,
)
from governance.domain.tables import TableCategory
from governance.errors import NotFound

__all__ = [
    "BUCKETS", "CHUNK_ROWS", "BlobPrefix", "CachePrefix", "Category", "Chunk", "Counts", "CycleError", "Drift", "EndsAfter", "Erased",
    "File", "Held", "LogStream", "NoLimit", "Processing", "Queue", "Sample", "Scope", "Spare", "SpoolDir", "Store", "Table", "TableCategory",
    "VectorColumn", "categories", "erase_order", "fingerprint", "get", "register", "unregister",
]  # fmt: skip

_categories: dict[str, Category] = {}


def register(category: Category) -> Category:
    """Add a category. Its key is stable: it appears in receipts and policies."""
    if category.key in _categories:
        raise ValueError(f"Category {category.key!r} is registered twice.")
    _categories[category.key] = category
    return category


def unregister(key: str) -> None:
    _categories.pop(key)


def categories() -> dict[str, Category]:
    """Every category by key, in the order of registration."""
    return dict(_categories)


def get(key: str) -> Category:
    """Raises NotFound for a key that nobody registered."""
    try:
        return _categories[key]
    except KeyError:
        raise NotFound(f"There is no category {key!r}.") from None


def erase_order() -> list[Category]:
    """All categories, each after those it must outlive. Raises CycleError; unknown names are the start-up check's business."""
    sorter = TopologicalSorter(
        {key: [name for name in category.erase_after if name in _categories] for key, category in _categories.items()}
    )
    return sorted((_categories[key] for key in sorter.static_order()), key=lambda category: category.is_last)


def fingerprint() -> str:
    """A hash over what the categories are. A preview made under another register is not carried out."""
    lines = [
        f"{category.key}|{category.method}|{','.join(sorted(store.key for store in category.stores))}"
        f"|{','.join(category.erase_after)}"
        for category in sorted(_categories.values(), key=lambda category: category.key)
    ]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()
