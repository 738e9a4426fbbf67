"""One cycle after another of the flit simulator, as numpy operations and as plain loops.

Both do the same, to the last packet: `advance_loops` is for a compiler (numba), `advance_numpy`
for machines without one. A cycle has two phases, so that the order of buffers does not matter:
all requests look at the state at the cycle's start, then all grants change it.

Buffers are numbered link by link and channel by channel, then injector by injector of each chip.
`ready` is the cycle from which the first packet of a buffer may move on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
NEVER = 1 << 60


class State(NamedTuple):
    """Buffers, links and counters; changed in place.

    Of each buffer: `sink`, `born`, `tail` and `exit` of its packets (a ring of slots), `front`,
    `occupied`, `ready`; `group` and `channel` that its first packet leaves by (-1: it has arrived);
    the chip it is `at`, whether its link `enters` a node, `period_in` and `ring_in` of the link.
    Of each link and channel: `credit`, and `returns` by cycle. Of each link: `busy` until, `last`
    buffer served, and the `link_*` constants. Of each group of links: `first`, `lanes`,
    `group_period`, and `waiting` packets of its node that have chosen it for their exit.

    With adaptive routes, of each chip: `place` (column and row of its node) and `exits` (the group
    by which each node of its row, then of its column is reached, -1 for its own node).
    """

    sink: Int64s
    born: Int64s
    tail: Int64s
    exit: Int64s
    front: Int64s
    occupied: Int64s
    ready: Int64s
    group: Int64s
    channel: Int64s
    credit: Int64s
    returns: Int64s
    busy: Int64s
    last: Int64s
    at: Int64s
    enters: npt.NDArray[np.bool_]
    period_in: Int64s
    ring_in: Int64s
    link_ring: Int64s
    link_period: Int64s
    link_delay: Int64s
    credit_delay: Int64s
    first: Int64s
    lanes: Int64s
    group_period: Int64s
    waiting: Int64s
    place: Int64s
    exits: Int64s
    port: npt.NDArray[np.int8]
    out_channel: npt.NDArray[np.int8]
    sizes: Int64s
    turn: Int64s
    delivered: Int64s
    waited: Int64s
    counters: Int64s


def advance_numpy(
    s: State,
    begin: int,
    end: int,
    cycles: Int64s,
    sources: Int64s,
    sinks: Int64s,
    warm_up: int,
    batch: int,
) -> None:
    """Advance from cycle `begin` to `end`, with packets born at `cycles`."""
    channels, injectors = int(s.sizes[0]), int(s.sizes[1])
    credited, buffers, horizon = s.credit.size, s.occupied.size, len(s.returns)
    edges = np.searchsorted(cycles, np.arange(begin, end + 1))
    most_lanes = int(s.lanes.max())
    for now in range(begin, end):
        slot = now % horizon
        s.credit[:] += s.returns[slot]
        s.returns[slot] = 0
        born = slice(int(edges[now - begin]), int(edges[now - begin + 1]))
        filled = _inject(s, now, sources[born], sinks[born], credited, injectors, now >= warm_up)
        _look(s, filled)

        found = np.flatnonzero(s.ready <= now)
        arrived = s.group[found] < 0
        done = found[arrived]
        if done.size:
            if now >= warm_up:
                first = s.front[done]
                part = (now - warm_up) // batch
                s.delivered[part] += done.size
                s.waited[part] += int((s.tail[done, first] - s.born[done, first] + 1).sum())
            _pop(s, done)
            _release(s, done, now + 1, credited, channels, horizon)
            s.counters[1] = now
        changed = [done]

        asking = found[~arrived]
        group, channel = s.group[asking], s.channel[asking]
        link = np.full(asking.size, -1)
        lanes, begin_lane = s.lanes[group], s.born[asking, s.front[asking]]
        for lane in range(most_lanes):
            tried = s.first[group] + (begin_lane + lane) % lanes
            ring = s.link_ring[tried]
            needed = 1 + ((ring >= 0) & (ring != s.ring_in[asking]))
            free = (s.busy[tried] <= now) & (s.credit[tried * channels + channel] >= needed)
            link = np.where((link < 0) & (lane < lanes) & free, tried, link)
        granted = link >= 0
        asking, link, channel = asking[granted], link[granted], channel[granted]
        if asking.size:
            rank = link * buffers + (asking - s.last[link] - 1) % buffers
            order = np.argsort(rank, kind="stable")
            winner = order[np.append(True, link[order][1:] != link[order][:-1])]
            asking, link, channel = asking[winner], link[winner], channel[winner]
            _send(s, now, asking, link, channel, credited, channels, horizon)
            changed += [asking, link * channels + channel]
            s.counters[1] = now
        _look(s, np.unique(np.concatenate(changed)))


def _inject(
    s: State,
    now: int,
    sources: Int64s,
    sinks: Int64s,
    credited: int,
    injectors: int,
    counted: bool,
) -> Int64s:
    queue = credited + sources * injectors + s.turn[sources] % injectors
    s.turn[sources] += 1
    room = s.occupied[queue] < s.sizes[2]
    if counted:
        s.counters[0] += int((~room).sum())
    filled: Int64s = queue[room]
    times = np.full(filled.size, now)
    _push(s, filled, sinks[room], times, times, np.full(filled.size, -1))
    return filled


def _send(
    s: State,
    now: int,
    buffers: Int64s,
    link: Int64s,
    channel: Int64s,
    credited: int,
    channels: int,
    horizon: int,
) -> None:
    period, first = s.link_period[link], s.front[buffers]
    sink, born, leave = (each[buffers, first] for each in (s.sink, s.born, s.exit))
    s.busy[link] = now + period
    s.last[link] = buffers
    following = link * channels + channel
    s.credit[following] -= 1
    _pop(s, buffers)
    _release(s, buffers, now + period, credited, channels, horizon)
    left = leave[s.enters[following] & (leave >= 0)]
    np.subtract.at(s.waiting, left, 1)
    leave = np.where(s.enters[following], -1, leave)
    _push(s, following, sink, born, now + s.link_delay[link] + period - 1, leave)


def _push(
    s: State, buffers: Int64s, sink: Int64s, born: Int64s, tail: Int64s, leave: Int64s
) -> None:
    place = (s.front[buffers] + s.occupied[buffers]) % s.sink.shape[1]
    for slots, value in ((s.sink, sink), (s.born, born), (s.tail, tail), (s.exit, leave)):
        slots[buffers, place] = value
    s.occupied[buffers] += 1


def _pop(s: State, buffers: Int64s) -> None:
    s.front[buffers] = (s.front[buffers] + 1) % s.sink.shape[1]
    s.occupied[buffers] -= 1


def _look(s: State, buffers: Int64s) -> None:
    """Route the first packet of each buffer."""
    s.ready[buffers] = NEVER
    buffers = buffers[s.occupied[buffers] > 0]
    first, here = s.front[buffers], s.at[buffers]
    sink, tail = s.sink[buffers, first], s.tail[buffers, first]
    if s.exits.shape[1]:
        port, channel = _adaptive(s, buffers, here, sink)
    else:
        port, channel = (each[here, sink].astype(np.int64) for each in (s.port, s.out_channel))
    group = here * s.sizes[3] + port
    period = np.minimum(s.period_in[buffers], s.group_period[group])
    s.group[buffers] = np.where(port < 0, -1, group)
    s.channel[buffers] = channel
    # No flit may be sent before it has come: a slower link in front sets the pace.
    s.ready[buffers] = np.where(port < 0, tail, tail + 1 - period)


def _adaptive(s: State, buffers: Int64s, here: Int64s, sink: Int64s) -> tuple[Int64s, Int64s]:
    """Return port and channel of first packets; one that has entered a node chooses its exit."""
    channels, ports = s.sizes[0], s.sizes[3]
    channel = np.where(buffers < s.credit.size, buffers % channels, 0)
    first = s.front[buffers]
    inside = (s.place[here] == s.place[sink]).all(axis=1)
    choosing = np.flatnonzero(~inside & (s.exit[buffers, first] < 0))
    if choosing.size:
        at, to = here[choosing], sink[choosing]
        exits, columns = s.exits[at], s.sizes[4]
        lines = np.arange(exits.shape[1])
        apart = s.place[at] != s.place[to]
        across = lines < columns
        target = np.where(across, lines, lines - columns)
        direct = np.where(across, s.place[to, :1], s.place[to, 1:]) == target
        hops = 1 + ~direct + np.where(across, apart[:, 1:], apart[:, :1])
        useful = (exits >= 0) & np.where(across, apart[:, :1], apart[:, 1:])
        useful &= hops < channels - channel[choosing, None]
        rank = np.where(useful, hops * (s.waiting[exits] + 1) * 8 + hops, NEVER)
        chosen = exits[np.arange(choosing.size), rank.argmin(axis=1)]
        s.exit[buffers[choosing], first[choosing]] = chosen
        np.add.at(s.waiting, chosen, 1)
    leave = s.exit[buffers, first]
    chip, port = leave // ports, leave % ports
    over = ~inside & (chip == here)
    mesh = s.port[here, np.where(inside, sink, chip)]
    return np.where(over, port, mesh), channel + over


def _release(
    s: State, buffers: Int64s, when: Int64s | int, credited: int, channels: int, horizon: int
) -> None:
    """Return credits to the links that fill `buffers`; injectors have none."""
    linked = buffers < credited
    times = np.broadcast_to(when, buffers.shape)[linked]
    which = buffers[linked]
    slots = (times + s.credit_delay[which // channels]) % horizon
    np.add.at(s.returns, (slots, which), 1)


def advance_loops(
    s: State,
    begin: int,
    end: int,
    cycles: Int64s,
    sources: Int64s,
    sinks: Int64s,
    warm_up: int,
    batch: int,
) -> None:
    """Do as `advance_numpy`, in loops that numba compiles."""
    channels, injectors, queue_size, ports = s.sizes[0], s.sizes[1], s.sizes[2], s.sizes[3]
    credited, buffers = s.credit.size, s.occupied.size
    horizon, depth = s.returns.shape[0], s.sink.shape[1]
    winner = np.full(s.busy.size, -1)
    best = np.zeros(s.busy.size, dtype=np.int64)
    # The buffers whose first packet changed, to be routed at the end of a phase.
    changed = np.zeros(2 * buffers, dtype=np.int64)
    asked = np.zeros(s.busy.size, dtype=np.int64)
    choices = np.zeros(2 * buffers, dtype=np.int64)
    options, columns = s.exits.shape[1], s.sizes[4]
    arrival = 0
    for now in range(begin, end):
        slot = now % horizon
        for index in range(credited):
            s.credit[index] += s.returns[slot, index]
            s.returns[slot, index] = 0
        changes = 0
        while arrival < cycles.size and cycles[arrival] == now:
            source = sources[arrival]
            queue = credited + source * injectors + s.turn[source] % injectors
            s.turn[source] += 1
            if s.occupied[queue] < queue_size:
                place = (s.front[queue] + s.occupied[queue]) % depth
                s.sink[queue, place] = sinks[arrival]
                s.born[queue, place] = now
                s.tail[queue, place] = now
                s.exit[queue, place] = -1
                s.occupied[queue] += 1
                if s.occupied[queue] == 1:
                    changed[changes] = queue
                    changes += 1
            elif now >= warm_up:
                s.counters[0] += 1
            arrival += 1
        for phase in range(2):
            chosen = 0
            for index in range(changes):
                buffer = changed[index]
                s.ready[buffer] = NEVER
                if s.occupied[buffer] > 0:
                    here, first = s.at[buffer], s.front[buffer]
                    sink, tail = s.sink[buffer, first], s.tail[buffer, first]
                    port = np.int64(s.port[here, sink])
                    leads = np.int64(s.out_channel[here, sink])
                    if options > 0:
                        leads = np.int64(buffer % channels if buffer < credited else 0)
                        column, row = s.place[here, 0], s.place[here, 1]
                        to_column, to_row = s.place[sink, 0], s.place[sink, 1]
                        if column != to_column or row != to_row:
                            leave = s.exit[buffer, first]
                            if leave < 0:
                                least = NEVER
                                for line in range(options):
                                    if line < columns:
                                        apart, beyond = column != to_column, row != to_row
                                        detour = line != to_column
                                    else:
                                        apart, beyond = row != to_row, column != to_column
                                        detour = line - columns != to_row
                                    group = s.exits[here, line]
                                    hops = 1 + np.int64(detour) + np.int64(beyond)
                                    if group < 0 or not apart or hops >= channels - leads:
                                        continue
                                    rank = hops * (s.waiting[group] + 1) * 8 + hops
                                    if rank < least:
                                        least, leave = rank, group
                                s.exit[buffer, first] = leave
                                choices[chosen] = leave
                                chosen += 1
                            chip = leave // ports
                            if chip == here:
                                port = leave % ports
                                leads += 1
                            else:
                                port = np.int64(s.port[here, chip])
                    if port < 0:
                        s.group[buffer] = -1
                        s.ready[buffer] = tail
                    else:
                        group = here * ports + port
                        s.group[buffer] = group
                        s.channel[buffer] = leads
                        period = min(s.period_in[buffer], s.group_period[group])
                        s.ready[buffer] = tail + 1 - period
            for index in range(chosen):
                s.waiting[choices[index]] += 1
            changes = 0
            if phase == 1:
                break
            links = 0
            for buffer in range(buffers):
                if s.ready[buffer] > now:
                    continue
                group, first = s.group[buffer], s.front[buffer]
                if group < 0:
                    if now >= warm_up:
                        part = (now - warm_up) // batch
                        s.delivered[part] += 1
                        s.waited[part] += s.tail[buffer, first] - s.born[buffer, first] + 1
                    s.front[buffer] = (first + 1) % depth
                    s.occupied[buffer] -= 1
                    changed[changes] = buffer
                    changes += 1
                    if buffer < credited:
                        when = now + 1 + s.credit_delay[buffer // channels]
                        s.returns[when % horizon, buffer] += 1
                    s.counters[1] = now
                    continue
                channel, lanes = s.channel[buffer], s.lanes[group]
                for lane in range(lanes):
                    link = s.first[group] + (s.born[buffer, first] + lane) % lanes
                    ring = s.link_ring[link]
                    needed = 1
                    if ring >= 0 and ring != s.ring_in[buffer]:
                        needed = 2
                    if s.busy[link] <= now and s.credit[link * channels + channel] >= needed:
                        rank = (buffer - s.last[link] - 1) % buffers
                        if winner[link] < 0:
                            asked[links] = link
                            links += 1
                        if winner[link] < 0 or rank < best[link]:
                            winner[link] = buffer
                            best[link] = rank
                        break
            for index in range(links):
                link = asked[index]
                buffer = winner[link]
                winner[link] = -1
                first, period = s.front[buffer], s.link_period[link]
                following = link * channels + s.channel[buffer]
                place = (s.front[following] + s.occupied[following]) % depth
                s.sink[following, place] = s.sink[buffer, first]
                s.born[following, place] = s.born[buffer, first]
                s.tail[following, place] = now + s.link_delay[link] + period - 1
                leave = s.exit[buffer, first]
                if s.enters[following]:
                    if leave >= 0:
                        s.waiting[leave] -= 1
                    leave = -1
                s.exit[following, place] = leave
                s.occupied[following] += 1
                s.busy[link] = now + period
                s.last[link] = buffer
                s.credit[following] -= 1
                s.front[buffer] = (first + 1) % depth
                s.occupied[buffer] -= 1
                changed[changes] = buffer
                changed[changes + 1] = following
                changes += 2
                if buffer < credited:
                    when = now + period + s.credit_delay[buffer // channels]
                    s.returns[when % horizon, buffer] += 1
                s.counters[1] = now
