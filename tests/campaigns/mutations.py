"""Random mutations of files, replies and parser inputs: each ends in a value or a typed error.

`MUTATIONS` inputs (default 10,000,000) are given to the targets of `mutation_targets`. A target has
processor time by its speed, up to six times that of a slow one: parsers see hundreds of thousands,
and files of YAML thousands. Inputs are drawn from `MUTATIONS_SEED`, the target and its corpus
alone. What gives an outcome that its target had not before (another error, or another kind of
value) is kept for later mutations in `MUTATIONS_CORPUS` (default `.mutations`), which later runs
start from.

What was done is a line of the campaign's file (`tests.campaigns.records`) every minute; a campaign
that was ended goes on behind the last line of its seed.

An exception that its target does not declare, or an input that takes more than five seconds of
processor time, is written into the corpus' folder `crashes`. Put such a file below
tests/fuzz_corpus/TARGET, where `tests/record/test_fuzz_corpus.py` tries it again for good.
"""

import contextlib
import gc
import hashlib
import json
import os
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.mutation_targets import Target, targets
from tests.campaigns.records import log, reported

BATCH_S = 0.5
"""Processor time of one turn of a target that takes `SLOW_PER_S` inputs a second."""
SLOW_PER_S = 10_000.0
SHARES = (0.5, 3.0)
"""Least and most of `BATCH_S`."""
LOOK_S = 0.02
"""Between two looks at the processor's clock, each of which may cost as much as many inputs."""
SAVE_S = 60.0
LARGE_TOKENS = 400
"""One token of so many is large."""
TOO_LONG_S = 5.0
MOST_SAVED = 300
LONGEST = 1 << 16

_TOKENS = (
    b"", b"\0", b"\n", b"\r\n", b" ", b"\t", b"-", b"-1", b"0", b"1e999", b"nan", b"inf",
    b"9" * 30, b"\xff", b"\xc3\x28", "\u0660".encode(), b"null", b"true", b"[", b"]",
    b"{", b"}", b'"', b"'", b":", b",", b";", b"<", b">", b"&", b"#", b"%", b"*", b"..", b"[0-9]",
    b"#9999999999", b"1_0", b"0x10", b"\\", b"\x1b[0m", b"\xef\xbb\xbf", b"{}", b"()",
)  # fmt: skip
_LARGE = (b"9" * 5000, b"[" * 3000)


def token(dice: random.Random) -> bytes:
    return dice.choice(_LARGE if dice.randrange(LARGE_TOKENS) == 0 else _TOKENS)


def mutated(dice: random.Random, seeds: list[bytes]) -> bytes:
    """Return one of `seeds`, changed at one to four places."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(data) + 1)
        kind = dice.randrange(9)
        if kind == 0 and data:
            data[at % len(data)] = dice.randrange(256)
        elif kind == 1 and data:
            data[at % len(data)] ^= 1 << dice.randrange(8)
        elif kind == 2:
            data[at:at] = token(dice)
        elif kind == 3:
            del data[at : at + dice.choice((1, 2, 8, 64))]
        elif kind == 4:
            data[at : at + dice.choice((1, 4))] = token(dice)
        elif kind == 5:
            length = dice.choice((1, 8, 40))
            data[at:at] = data[at : at + length] * dice.choice((1, 2))
        elif kind == 6:
            second = dice.choice(seeds)
            start = dice.randrange(len(second) + 1)
            data[at:] = second[start:] if dice.random() < 0.5 else second[start : start + 30]
        elif kind == 7:
            digits = [m.start() for m in re.finditer(rb"[0-9]", data[:4096])]
            if digits:
                data[dice.choice(digits)] = dice.choice(b"0123456789.-eE")
        else:
            lines = data.split(b"\n")
            one, two = dice.randrange(len(lines)), dice.randrange(len(lines))
            lines[one], lines[two] = lines[two], lines[one]
            data = bytearray(b"\n".join(lines))
    return bytes(data[:LONGEST])


@dataclass
class Progress:
    """Outcomes of one target's inputs."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    crashes: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    batches: int = 0
    longest: float = 0.0

    def share(self) -> float:
        """Return the processor time of the next turn, in seconds."""
        speed = self.inputs / self.seconds if self.seconds else 0.0
        least, most = SHARES
        return BATCH_S * min(most, max(least, speed / SLOW_PER_S))


def attempt(target: Target, data: bytes) -> tuple[str, str]:
    """Try one input; return the kind of its outcome, and the traceback of a crash."""
    try:
        value = target.run(data)
    except target.errors as error:
        text = re.sub(r"[0-9]+|'[^']*'|\"[^\"]*\"", "*", str(error))[:40]
        return f"{type(error).__name__}: {text}", ""
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "/tests/campaigns/" not in f.filename]
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        mine = next((f for f in reversed(ours) if "/lightrig/" in f.filename), None)
        inside = f" from {Path(mine.filename).name}:{mine.lineno}" if mine else ""
        return "CRASH", f"{type(error).__name__} at {place}{inside}: {str(error)[:120]}"
    return f"value {type(value).__name__}", ""


def turn(target: Target, progress: Progress, seed: str, corpus: Path, seconds: float) -> None:
    """Mutate for `seconds` of processor time."""
    folder = corpus / target.name
    dice = random.Random(f"{seed} {target.name} {progress.batches}")
    progress.batches += 1
    seeds, outcomes = target.corpus, progress.outcomes
    clock = time.monotonic
    began, used = time.process_time(), 0.0
    while used < seconds:
        after = clock()
        look = after + LOOK_S
        while after < look:
            before = after
            data = mutated(dice, seeds)
            outcome, crash = attempt(target, data)
            progress.inputs += 1
            if crash and crash not in progress.crashes:
                progress.crashes[crash] = write(corpus / "crashes" / target.name, data)
            if outcome in outcomes:
                outcomes[outcome] += 1
            elif len(outcomes) < MOST_SAVED:
                outcomes[outcome] = 1
                seeds.append(data)
                write(folder, data)
            after = clock()
            if after - before > progress.longest:
                took = min(after - before, seconds_for(target, data))
                progress.longest = max(progress.longest, took)
                if took > TOO_LONG_S:
                    name = write(corpus / "crashes" / target.name, data)
                    progress.crashes[f"took {took:.1f} s"] = name
                after = clock()
        used = time.process_time() - began
    progress.seconds += used


def seconds_for(target: Target, data: bytes) -> float:
    """Return the processor time of one input; real time has the machine's other work in it."""
    began = time.process_time()
    attempt(target, data)
    return time.process_time() - began


def write(folder: Path, data: bytes) -> str:
    """Write an input; return its name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()[:16]
    (folder / name).write_bytes(data)
    return name


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of target by outcome, over all seeds, and whether nothing crashed."""
    found: dict[str, Progress] = {}
    # The last line of each seed has all that was done with it.
    for line in {each["seed"]: each for each in done}.values():
        for name, values in line["targets"].items():
            of = found.setdefault(name, Progress())
            one = Progress(**values)
            of.inputs += one.inputs
            of.outcomes.update(one.outcomes)
            of.crashes |= one.crashes
            of.seconds += one.seconds
            of.longest = max(of.longest, one.longest)
    titles = ("inputs", "1/CPU s", "values", "typed", "kinds", "worst ms", "crashes")
    printed = [f"{'target':<28}" + "".join(f"{title:>12}" for title in titles)]
    for name, each in found.items():
        values = sum(n for kind, n in each.outcomes.items() if kind.startswith("value"))
        crashed = each.outcomes["CRASH"]
        rate = each.inputs / each.seconds if each.seconds else 0
        typed = each.inputs - values - crashed
        numbers = [each.inputs, rate, values, typed, len(each.outcomes), each.longest * 1e3]
        cells = "".join(f"{number:>12,.0f}" for number in (*numbers, crashed))
        printed.append(f"{name:<28}{cells}")
    for name, each in found.items():
        printed += [f"  {name}: {crash} ({file})" for crash, file in each.crashes.items()]
    inputs = sum(each.inputs for each in found.values())
    seconds = sum(each.seconds for each in found.values())
    printed.append(f"all {inputs:,} inputs over {len(found)} targets, {seconds:.0f} CPU s")
    return printed, not any(each.crashes for each in found.values())


def main(report: Callable[[str], object] = print) -> bool:
    """Mutate until the number is reached; returns whether each input ended as declared."""
    wanted = int(os.environ.get("MUTATIONS", "10000000"))
    seed = os.environ.get("MUTATIONS_SEED", "1")
    corpus = Path(os.environ.get("MUTATIONS_CORPUS", ".mutations"))
    only = [name for name in os.environ.get("MUTATIONS_TARGETS", "").split(",") if name]
    chosen = [each for each in targets() if not only or each.name in only]
    for target in chosen:
        with contextlib.suppress(FileNotFoundError):
            for path in sorted((corpus / target.name).iterdir()):
                target.corpus.append(path.read_bytes())
    gc.freeze()
    with log("mutations") as lines:
        last = [each for each in lines.done if each["seed"] == seed]
        found = (
            {name: Progress(**values) for name, values in last[-1]["targets"].items()}
            if last
            else {}
        )
        for each in found.values():
            each.outcomes = Counter(each.outcomes)

        def done() -> int:
            return sum(each.inputs for each in found.values())

        def save() -> None:
            lines.add(
                {
                    "seed": seed,
                    "inputs": done(),
                    "targets": {n: vars(p) for n, p in found.items()},
                }
            )

        saved = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):  # the table is of what was tried until then
            while done() < wanted:
                for target in chosen:
                    progress = found.setdefault(target.name, Progress())
                    turn(target, progress, seed, corpus, progress.share())
                if time.monotonic() - saved > SAVE_S:
                    save()
                    saved = time.monotonic()
                    crashes = sum(len(each.crashes) for each in found.values())
                    report(json.dumps({"inputs": done(), "crashes": crashes}))
                    sys.stdout.flush()
        save()
        return reported(*table(lines.done), report)
