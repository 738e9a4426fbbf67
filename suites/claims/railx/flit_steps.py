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

    Of each buffer: `sink`, `born` and `tail` of its packets (a ring of slots), `front`, `occupied`,
    `ready`; `group` and `channel` that its first packet leaves by (-1: it has arrived); the chip
    it is `at`, `period_in` and `ring_in` of the link that fills it. Of each link and channel:
    `credit`, and `returns` by cycle. Of each link: `busy` until, `last` buffer served, and the
    `link_*` constants. Of each group of links: `first`, `lanes`, `group_period`.
    """

    sink: Int64s
    born: Int64s
    tail: Int64s
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
    period_in: Int64s
    ring_in: Int64s
    link_ring: Int64s
    link_period: Int64s
    link_delay: Int64s
    credit_delay: Int64s
    first: Int64s
    lanes: Int64s
    group_period: Int64s
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
        _inject(s, now, sources[born], sinks[born], credited, injectors, now >= warm_up)

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
        if not asking.size:
            continue
        rank = link * buffers + (asking - s.last[link] - 1) % buffers
        order = np.argsort(rank, kind="stable")
        winner = order[np.append(True, link[order][1:] != link[order][:-1])]
        _send(s, now, asking[winner], link[winner], channel[winner], credited, channels, horizon)
        s.counters[1] = now


def _inject(
    s: State,
    now: int,
    sources: Int64s,
    sinks: Int64s,
    credited: int,
    injectors: int,
    counted: bool,
) -> None:
    queue = credited + sources * injectors + s.turn[sources] % injectors
    s.turn[sources] += 1
    room = s.occupied[queue] < s.sizes[2]
    if counted:
        s.counters[0] += int((~room).sum())
    _push(s, queue[room], sinks[room], np.full(int(room.sum()), now), np.full(int(room.sum()), now))


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
    sink, born = s.sink[buffers, first], s.born[buffers, first]
    s.busy[link] = now + period
    s.last[link] = buffers
    following = link * channels + channel
    s.credit[following] -= 1
    _pop(s, buffers)
    _release(s, buffers, now + period, credited, channels, horizon)
    _push(s, following, sink, born, now + s.link_delay[link] + period - 1)


def _push(s: State, buffers: Int64s, sink: Int64s, born: Int64s, tail: Int64s) -> None:
    place = (s.front[buffers] + s.occupied[buffers]) % s.sink.shape[1]
    s.sink[buffers, place], s.born[buffers, place], s.tail[buffers, place] = sink, born, tail
    s.occupied[buffers] += 1
    _look(s, buffers[s.occupied[buffers] == 1])


def _pop(s: State, buffers: Int64s) -> None:
    s.front[buffers] = (s.front[buffers] + 1) % s.sink.shape[1]
    s.occupied[buffers] -= 1
    s.ready[buffers] = NEVER
    _look(s, buffers[s.occupied[buffers] > 0])


def _look(s: State, buffers: Int64s) -> None:
    """Route the first packet of each buffer."""
    first, here = s.front[buffers], s.at[buffers]
    sink, tail = s.sink[buffers, first], s.tail[buffers, first]
    port = s.port[here, sink].astype(np.int64)
    group = here * s.sizes[3] + port
    period = np.minimum(s.period_in[buffers], s.group_period[group])
    s.group[buffers] = np.where(port < 0, -1, group)
    s.channel[buffers] = s.out_channel[here, sink]
    # No flit may be sent before it has come: a slower link in front sets the pace.
    s.ready[buffers] = np.where(port < 0, tail, tail + 1 - period)


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
                s.occupied[queue] += 1
                if s.occupied[queue] == 1:
                    changed[changes] = queue
                    changes += 1
            elif now >= warm_up:
                s.counters[0] += 1
            arrival += 1
        for phase in range(2):
            for index in range(changes):
                buffer = changed[index]
                s.ready[buffer] = NEVER
                if s.occupied[buffer] > 0:
                    here, first = s.at[buffer], s.front[buffer]
                    sink, tail = s.sink[buffer, first], s.tail[buffer, first]
                    port = np.int64(s.port[here, sink])
                    if port < 0:
                        s.group[buffer] = -1
                        s.ready[buffer] = tail
                    else:
                        group = here * ports + port
                        s.group[buffer] = group
                        s.channel[buffer] = s.out_channel[here, sink]
                        period = min(s.period_in[buffer], s.group_period[group])
                        s.ready[buffer] = tail + 1 - period
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
