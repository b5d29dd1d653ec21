"""Geometry of the console's charts: numbers in, SVG attributes out. No script draws and no style attribute sizes."""

from django.utils.formats import number_format

HEIGHT = 200
WIDTH = 1000


def chart_of(points, *, label, kind="line", unit="", cut=None) -> dict:
    """What templates/ui/chart.html needs, in a box of 1000 x 200 that stretches to its place.

    `points` are dicts with label, value (None for none), and optionally `bad` (the failed part of the value) and
    `shown` (its words).
    """
    points = list(points)
    top = max([float(point["value"] or 0) for point in points], default=0) or 1
    step = WIDTH / max(len(points), 1)
    columns = []
    for index, point in enumerate(points):
        value, bad = float(point["value"] or 0), float(point.get("bad") or 0)
        height, bad_height = value / top * (HEIGHT - 8), bad / top * (HEIGHT - 8)
        shown = point.get("shown") or _words(point["value"], unit)
        columns.append(
            {
                "label": point["label"],
                "shown": shown,
                "bad": point.get("bad") or 0,
                "title": f"{point['label']}: {shown}",
                "left": f"{index * step:.2f}",
                "step": f"{step:.2f}",
                "x": f"{index * step + step * 0.14:.2f}",
                "width": f"{step * 0.72:.2f}",
                "y": f"{HEIGHT - height:.2f}",
                "height": f"{height:.2f}",
                "bad_y": f"{HEIGHT - bad_height:.2f}",
                "bad_height": f"{bad_height:.2f}" if bad else "",
            }
        )
    curve, area = _line([(index * step + step / 2, column["y"]) for index, column in enumerate(columns)], points)
    peak = max(points, key=lambda point: float(point["value"] or 0), default=None)
    return {
        "label": label,
        "kind": kind,
        "columns": columns,
        "curve": curve,
        "area": area,
        "first": points[0]["label"] if points else "",
        "last": points[-1]["label"] if points else "",
        "top": f"max {peak.get('shown') or _words(peak['value'], unit)}" if peak else "",
        "summary": f"{label}, {points[0]['label']} to {points[-1]['label']}, highest {peak.get('shown') or _words(peak['value'], unit)} on {peak['label']}" if points else label,
        "has_bad": any(point.get("bad") is not None for point in points),
        "cut_x": f"{cut * step:.2f}" if cut is not None else "",
    }


def _line(places, points):
    """The path of a line and of the area below it. A point without a value interrupts both: nothing is not zero."""
    stretches = [[]]
    for place, point in zip(places, points, strict=True):
        if point["value"] is None:
            stretches.append([])
        else:
            stretches[-1].append(place)
    curve = area = ""
    for stretch in filter(None, stretches):
        # A lonely point is drawn as a short dash.
        drawn = stretch if len(stretch) > 1 else [(stretch[0][0] - 4, stretch[0][1]), (stretch[0][0] + 4, stretch[0][1])]
        path = " L".join(f"{x:.2f} {y}" for x, y in drawn)
        curve += f"M{path} "
        area += f"M{path} L{drawn[-1][0]:.2f} {HEIGHT} L{drawn[0][0]:.2f} {HEIGHT} Z "
    return curve.strip(), area.strip()


def _words(value, unit):
    if value is None:
        return "–"
    shown = number_format(value, use_l10n=True, force_grouping=True)
    return f"{shown} {unit}".strip()
