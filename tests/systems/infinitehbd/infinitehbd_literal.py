"""Algorithms 2 to 5 with sets and loops, as the paper prints them but for what cannot run.

Written apart from the control plane, so that a mistake in one is not hidden in the other. Nodes
count from 1 here. Corrected is what no reader could follow: the deployment order, the number of
sub-lines, the set that is never assigned, the edges of a sub-line, the block printed in a loop.
What is left as printed: the search tests the last placement, not the best.
"""

from itertools import combinations, pairwise, permutations


def deployed(n, p):
    return [node for i in range(1, p + 1) for node in range(i, n + 1, p)]


def dcn_free(line, reach, faulty, m):
    place = {node: at for at, node in enumerate(line)}
    healthy = [node for node in line if node not in faulty]
    seen, groups = set(), []
    for start in healthy:
        if start in seen:
            continue
        component, todo = set(), [start]
        while todo:
            node = todo.pop()
            if node in component:
                continue
            component.add(node)
            todo += [other for other in healthy if 0 < abs(place[other] - place[node]) <= reach]
        seen |= component
        left = sorted(component, key=place.get)
        while len(left) >= m:
            groups.append(tuple(left[:m]))
            left = left[m:]
    return groups


def fat_tree(n, p, d, m, reach, faulty, constraints):
    sublines = n * p // d
    line, bad = deployed(n, p), set(faulty)
    for i in range(max(0, constraints - sublines)):
        for node in range(i * d + 1, (i + 1) * d + 1):
            if node in faulty:
                tor = (node - 1) // p
                bad |= set(range(tor * p + 1, (tor + 1) * p + 1))
    groups, length = [], d // p
    for _ in range(min(sublines, constraints)):
        head, line = line[:length], line[length:]
        groups += dcn_free(head, reach, bad, m)
    return groups + dcn_free(line, reach, bad, m)


def search(n, p, d, m, reach, faulty, wanted):
    """The last placement tried, if it is enough, and the constraints it kept."""
    low, high = 0, n // d + n * p // d
    while low <= high:
        middle = (low + high) // 2
        groups = fat_tree(n, p, d, m, reach, faulty, middle)
        if len(groups) >= wanted:
            low = middle + 1
        else:
            high = middle - 1
    return (groups, middle) if len(groups) >= wanted else None


def most_groups(n, reach, faulty, m, closed):
    """By trying: the most disjoint sets of healthy nodes that some order joins into a path."""

    def joined(a, b):
        apart = abs(a - b)
        return min(apart, n - apart if closed else apart) <= reach

    def is_path(nodes):
        return any(all(joined(a, b) for a, b in pairwise(order)) for order in permutations(nodes))

    healthy = [node for node in range(n) if node not in faulty]
    sets = [frozenset(nodes) for nodes in combinations(healthy, m) if is_path(nodes)]

    def best(left):
        return max(
            (1 + best([o for o in left[i + 1 :] if not o & s]) for i, s in enumerate(left)),
            default=0,
        )

    return best(sets)
