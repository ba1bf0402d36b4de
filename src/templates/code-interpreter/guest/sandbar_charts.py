"""What a matplotlib figure shows, as data: lines, points, bars and slices."""


def chart_of(figure):
    charts = [_axes(axes) for axes in figure.axes]
    charts = [chart for chart in charts if chart is not None]
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if figure._suptitle else ""
    return {"type": "superchart", "title": title, "elements": charts}


def _axes(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.container import BarContainer
    from matplotlib.patches import Wedge

    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    bars = [container for container in axes.containers if isinstance(container, BarContainer)]
    points = [each for each in axes.collections if isinstance(each, PathCollection)]
    if axes.name == "3d":
        return _unknown(axes)
    if wedges:
        return _pie(axes, wedges)
    if bars:
        return _bars(axes, bars)
    if points:
        return _points(axes, "scatter", [_scatter(each) for each in points])
    if axes.lines:
        return _points(axes, "line", [_line(each) for each in axes.lines])
    return _unknown(axes)


def _unknown(axes):
    return {"type": "unknown", "title": axes.get_title(), "elements": []}


def _pie(axes, wedges):
    names = [text.get_text() for text in axes.texts]
    elements = [
        {"label": wedge.get_label() if not wedge.get_label().startswith("_") else _at(names, index), "angle": abs(wedge.theta2 - wedge.theta1), "radius": wedge.r}
        for index, wedge in enumerate(wedges)
    ]
    return {"type": "pie", "title": axes.get_title(), "elements": elements}


def _bars(axes, containers):
    upright = all(container.orientation != "horizontal" for container in containers)
    axis = axes.xaxis if upright else axes.yaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    elements = []
    for container in containers:
        group = "" if str(container.get_label()).startswith("_") else str(container.get_label())
        for index, bar in enumerate(container):
            value = bar.get_height() if upright else bar.get_width()
            middle = bar.get_x() + bar.get_width() / 2 if upright else bar.get_y() + bar.get_height() / 2
            # A category has a tick for each of its bars; the bars of a histogram are named by where they stand.
            label = labels[index] if len(labels) == len(container) else f"{middle:.6g}"
            elements.append({"label": label, "value": _plain(value), "group": group})
    return {"type": "bar", **_common(axes), "elements": elements}


def _points(axes, kind, elements):
    def ticks(axis):
        return [_plain(each) for each in axis.get_ticklocs()], [label.get_text() for label in axis.get_ticklabels()]

    x_ticks, x_labels = ticks(axes.xaxis)
    y_ticks, y_labels = ticks(axes.yaxis)
    return {
        "type": kind,
        **_common(axes),
        "x_ticks": x_ticks,
        "x_tick_labels": x_labels,
        "x_scale": axes.get_xscale(),
        "y_ticks": y_ticks,
        "y_tick_labels": y_labels,
        "y_scale": axes.get_yscale(),
        "elements": elements,
    }


def _common(axes):
    import re

    def unit(label):
        found = re.search(r"\(([^)]*)\)\s*$", label)
        return found.group(1) if found else None

    x_label, y_label = axes.get_xlabel(), axes.get_ylabel()
    return {
        "title": axes.get_title(),
        "x_label": x_label,
        "y_label": y_label,
        "x_unit": unit(x_label),
        "y_unit": unit(y_label),
    }


def _line(line):
    label = line.get_label()
    points = [[_plain(x), _plain(y)] for x, y in zip(line.get_xdata(), line.get_ydata())]
    return {"label": "" if str(label).startswith("_") else label, "points": points}


def _scatter(collection):
    label = collection.get_label()
    points = [[_plain(x), _plain(y)] for x, y in collection.get_offsets()]
    return {"label": "" if str(label).startswith("_") else label, "points": points}


def _at(texts, index):
    return texts[index] if index < len(texts) else str(index)


def _plain(value):
    import datetime
    import math

    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (int, float, str)) else str(value)
