"""An SVG drawing read back: points of marks and places of words, in pixels."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

_NUMBERS = re.compile(r"-?(?:\d+\.?\d*|\.\d+)")


def corners(d):
    """Return the absolute points of a path of M, L, l, H, h, V, v, Q, C and z."""
    x = y = 0.0
    found = []
    for letter, given in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        values = [float(number) for number in _NUMBERS.findall(given)]
        match letter:
            case "M" | "L":
                x, y = values
            case "l" | "m":
                x, y = x + values[0], y + values[1]
            case "h" | "H":
                x = values[0] + (x if letter == "h" else 0)
            case "v" | "V":
                y = values[0] + (y if letter == "v" else 0)
            case "Q" | "C":
                found += [tuple(pair) for pair in zip(values[:-2:2], values[1:-2:2], strict=True)]
                x, y = values[-2:]
            case "z":
                continue
        found.append((x, y))
    return [(round(a, 1), round(b, 1)) for a, b in found]


def elements(svg, kind):
    """Return the elements that have a class."""
    return [one for one in ET.fromstring(svg).iter() if kind in one.get("class", "").split()]


def filled_elements(svg):
    """Return the elements that have a colour themselves, not by their class."""
    return [one for one in ET.fromstring(svg).iter() if one.get("fill", "").startswith("#")]


def marks(svg, kind):
    """Return the points of each path that has a class."""
    return [corners(one.get("d")) for one in elements(svg, kind)]


def boxes(svg, kind):
    """Return x, y, width and height of each rectangle that has a class."""
    names = "x", "y", "width", "height"
    return [tuple(float(one.get(name)) for name in names) for one in elements(svg, kind)]


def words(svg):
    """Return each text with its x, its y and where its anchor is: start, middle or end."""
    found = []
    for one in ET.fromstring(svg).iter():
        if not one.tag.endswith("text"):
            continue
        classes = one.get("class", "").split()
        anchor = "middle" if "lr-mid" in classes else "end" if "lr-end" in classes else "start"
        styled = re.search(r"text-anchor:(\w+)", one.get("style", ""))
        place = float(one.get("x")), float(one.get("y"))
        found.append((one.text, *place, styled[1] if styled else anchor))
    return found


def size(svg):
    """Return width and height of a drawing."""
    return tuple(map(float, ET.fromstring(svg).get("viewBox").split()[2:]))


def turns(points):
    """Return a path without the points at which it goes straight on, level or upright."""
    kept = []
    for point in points:
        for axis in (0, 1):
            if len(kept) > 1 and kept[-2][axis] == kept[-1][axis] == point[axis]:
                kept.pop()
        kept.append(point)
    assert all(one != other for one, other in pairwise(kept))
    return kept
