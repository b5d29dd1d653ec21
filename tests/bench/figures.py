"""Small helpers of the benches: percentiles, tables, bars."""

import statistics
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under `head`, columns as wide as their widest entry."""
    cells = [list(head), *([f"{cell:,.2f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for number, row in enumerate(cells):
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def bar(what: str, value: float, limit: float, unit: str = "", *, at_least: bool = False) -> int:
    """Print whether `value` keeps to `limit`; returns 1 when it does not."""
    met = value >= limit if at_least else value <= limit
    rule = "at least" if at_least else "at most"
    print(f"  {'met   ' if met else 'MISSED'} {what}: {value:,.2f}{unit} ({rule} {limit:g}{unit})")
    return 0 if met else 1
