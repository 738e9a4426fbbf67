"""Matchings of a rotation; values in, values out.

Source: Doe et al., Carousel, 2026, section 3.
"""


def rotation(servers: int) -> list[list[tuple[int, int]]]:
    """Return matchings in which every server meets every other one exactly once.

    All but the last server turn on a circle, as in a round-robin tournament. Raises
    `ValueError` for an odd number of servers.
    """
    if servers < 2 or servers % 2:
        raise ValueError(f"found {servers} servers, expected an even number from 2")
    *circle, fixed = range(servers)
    matchings = []
    for turn in range(servers - 1):
        turned = [*circle[turn:], *circle[:turn], fixed]
        pairs = zip(turned[: servers // 2], reversed(turned[servers // 2 :]), strict=True)
        matchings.append([(min(pair), max(pair)) for pair in pairs])
    return matchings
