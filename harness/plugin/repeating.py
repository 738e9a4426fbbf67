"""The exact command that repeats one test alone."""

import os
import shlex
from collections.abc import Mapping

import pytest

from lightrig.harness.plugin.collection import testbed_of


class Repeats:
    """Writes, for each test, the command that repeats it with the options of this session.

    files: the testbeds' files, as they were given, by the testbeds' names.
    """

    def __init__(self, config: pytest.Config, files: Mapping[str, str]) -> None:
        self._from = os.path.relpath(config.rootpath, config.invocation_params.dir)
        self._files = files
        options = ["--instruments", config.option.instruments]
        options += ["--seed", str(config.getoption("seed"))]
        if config.getoption("samples") is not None:
            options += ["--samples", str(config.getoption("samples"))]
        if config.getoption("profile") != "quick":
            options += ["--profile", config.getoption("profile")]
        self._options = shlex.join(options)

    def command(self, item: pytest.Item) -> str:
        """The command for `item`, to be given where this session was started."""
        test = item.nodeid if self._from == "." else os.path.join(self._from, item.nodeid)
        testbed = testbed_of(item)
        file = self._files.get(testbed.name) if testbed else None
        files = self._files.values() if file is None else [file]
        given = " ".join(f"--testbed {shlex.quote(file)}" for file in files)
        return f"pytest {shlex.quote(test)} {given} {self._options}"
