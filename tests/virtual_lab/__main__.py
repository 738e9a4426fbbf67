"""Build and boot the virtual lab, until Ctrl-C, or until the parts named have been tried on it.

A lab that another terminal has booted is used for parts. Exit status: 0; 1 if a part or a step
failed; 2 where the lab cannot be booted here.
"""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .lab import VirtualLab, attached, booted, is_booted
from .parts import LONG_PARTS, PARTS
from .steps import DEFAULT_FOLDER, VirtualLabError, built, obstacle


def main() -> int:
    """Build, boot and wait; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.virtual_lab", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of root and image")
    parser.add_argument("--accelerator", choices=("tcg", "kvm"), default="tcg")
    parser.add_argument("--build", action="store_true", help="build only")
    known = [*PARTS, *LONG_PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all, or {', '.join(known)}")
    options = parser.parse_args()
    names = list(PARTS) if options.parts == ["all"] else options.parts
    if unknown := set(names) - set(known):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    problem = obstacle() or (None if os.geteuid() == 0 else "the virtual lab needs root")
    if problem:
        print(problem, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.build:
            built(options.folder)
            return 0
        if names and is_booted(options.folder):
            return _try(attached(options.folder), names)
        with booted(options.folder, options.accelerator) as lab:
            if names:
                return _try(lab, names)
            print(f". {shlex.quote(os.path.relpath(lab.folder / 'environment'))}")
            testbed = os.path.relpath(lab.testbed)
            print(f"pytest suites --testbed {testbed} --instruments hardware", flush=True)
            signal.pause()
    except VirtualLabError as error:
        print(f"the virtual lab failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _try(lab: VirtualLab, names: Sequence[str]) -> int:
    """Try parts, one after the other; returns the exit status."""
    failed = 0
    for name in names:
        began = time.monotonic()
        try:
            lines, ended = (PARTS | LONG_PARTS)[name](lab), "passed"
        except (AssertionError, VirtualLabError, subprocess.TimeoutExpired) as error:
            lines, ended = [str(error)], "FAILED"
            failed += 1
            with contextlib.suppress(VirtualLabError):
                lines += lab.stopped_sending()
        print(f"== {name}: {ended} after {time.monotonic() - began:.0f} s")
        print("".join(f"   {line}\n" for line in lines), end="", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
