"""Programs of a simulated server: each prints what the real one does, from the ground truth.

Independent of the parsers that will read them: formats are those of ethtool, mlxlink, rdma, ip
and sysfs as their sources and samples have them.
"""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.hosts import (
    cmis_memory,
    ethtool_format,
    ethtool_json_format,
    host_files,
    infiniband_format,
    iproute_format,
    mlxlink_format,
)
from lightrig.instruments.simulated.hosts.host_ports import HostPort, PortLight, SimulatedPort
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome, no_such_program
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Delay, Port

TOOLS = frozenset({"ethtool", "mlxlink", "rdma", "ip", "ibstat", "ibdev2netdev"})
"""Programs that a server has by default; cat, grep and uname it always has."""

_OF_THE_SHELL = frozenset({"cat", "grep", "readlink", "rm", "command", "env"})
"""Programs that a shell has too; only what concerns the simulated world is answered here."""

ModuleJson = Literal["none", "repeating", "renamed"]
"""Version of `ethtool --json -m`: before it existed, as first released, as repaired."""

MlxlinkPaths = Literal["none", "mask", "value"]
"""How `mlxlink -m` prints states of data paths: not at all; as all releases until 2026 do, which
take the number for a bit mask; as repaired (mstflint, pull request 1960)."""

_MS = 1_000_000
_TOOK = {"module": 60 * _MS, "mlxlink": 350 * _MS, "ethtool": 2 * _MS}
"""Run times in ns; guesses: reading a module's memory is slow, mlxlink slower."""

_ENCODINGS = {"auto": "Auto", "rs": "RS", "off": "Off", "baser": "BaseR", "llrs": "LLRS"}
"""FEC encodings as ethtool takes them, and as it prints them."""

_ERROR = "\x1b[31m \n\x1b[0m \n"


class _Failure(Exception):  # noqa: N818 - what a program says before it ends, not a fault of ours
    def __init__(self, status: int, stderr: str, stdout: str = "") -> None:
        super().__init__(stderr)
        self.outcome = ProgramOutcome(stdout, stderr, status)


@dataclass(frozen=True, slots=True)
class HostSoftware:
    """Programs that are installed on a server, and their versions.

    Attributes:
        mlxlink_timers: whether the file of --amber_collect has the page of the link-up.
        mlxlink_paths: see `MlxlinkPaths`.
    """

    tools: Collection[str] = TOOLS
    module_json: ModuleJson = "repeating"
    mlxlink_json: bool = True
    mlxlink_timers: bool = True
    mlxlink_paths: MlxlinkPaths = "mask"
    driver: str = "mlx5_core"
    kernel: str = "6.8.0"
    fec_histogram: bool = False


class ServerPrograms(Protocol):
    """Programs of one server that a pack adds, such as those that send traffic.

    Attributes:
        files: what they have written, by path.
    """

    files: dict[str, str]

    def programs(self) -> Mapping[str, Callable[[Sequence[str]], ProgramOutcome]]:
        """Return the installed ones by name; each takes its arguments and runs to its end."""

    def starts(self, argv: Sequence[str]) -> bool:
        """Whether a command line that begins with `env` starts one of them."""


_NO_DELAY = Delay(0)
_SOFTWARE = HostSoftware()


class HostTools:
    """One server's programs.

    Args:
        name: the server.
        ports: its NIC ports.
        links: what their links do.
        light: the world's light.
        roster: all servers' ports, which this server's are added to.
        delay: one way through the management network.
        software: what is installed.
        laser: switches a port's laser on or off, as bringing its device up or down does.
        further: programs of packs.

    Attributes:
        ports: its NIC ports, with what they count and are like.
        programs: what runs each command, given its arguments.
    """

    def __init__(
        self,
        name: str,
        ports: Sequence[HostPort],
        links: NicLinks,
        light: PortLight,
        clock: Clock,
        chance: Chance,
        roster: dict[Port, SimulatedPort],
        *,
        delay: Delay = _NO_DELAY,
        software: HostSoftware = _SOFTWARE,
        laser: Callable[[Port, bool], None] = lambda port, on: None,
        further: Sequence[ServerPrograms] = (),
    ) -> None:
        self.ports = [SimulatedPort(port, links, light, clock, chance, roster) for port in ports]
        roster.update({port.spec.port: port for port in self.ports})
        self._name = name
        self._software = software
        self._delay = delay
        self._laser = laser
        self._further = further
        self._written = ChainMap(*(each.files for each in further))
        self._draws = chance.stream(f"{name}/tools")
        self._collected: dict[str, str] = {}
        self.programs: dict[str, Callable[[Sequence[str]], ProgramOutcome]] = {
            "ethtool": self._ethtool,
            "mlxlink": self._mlxlink,
            "mstlink": self._mlxlink,
            "rdma": self._rdma,
            "ip": self._ip,
            "cat": self._cat,
            "grep": self._grep,
            "readlink": self._readlink,
            "uname": self._uname,
            "ibstat": self._ibstat,
            "ibdev2netdev": self._ibdev2netdev,
            "command": self._command,
        }
        for each in further:
            self.programs |= each.programs()
        self._remove_further = self.programs.get("rm")
        self.programs["rm"] = self._rm

    def run(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run a program to its end; return its output and its run time."""
        name = self._installed(argv[0])
        if name is None:
            return self._delayed(no_such_program(argv))
        try:
            outcome = self.programs[name](argv[1:])
        except _Failure as failure:
            outcome = failure.outcome
        return self._delayed(outcome)

    def answers(self, argv: Sequence[str]) -> bool:
        """Whether a command is one of the simulated world, not of any server's shell."""
        name = argv[0].rpartition("/")[2]
        if name not in self.programs:
            return False
        if name in ("cat", "grep", "readlink", "rm"):
            known = {**self._written, **self._collected}
            ours = "/sys/class/", host_files.PCI
            return any(each in known or each.startswith(ours) for each in argv[1:])
        if name == "env":
            return any(each.starts(argv) for each in self._further)
        return name != "command" or self._installed(argv[-1]) is not None

    def replaced(self) -> list[str]:
        """Return the programs that stand in the place of a real server's."""
        return sorted(name for name in self.programs if name not in _OF_THE_SHELL)

    def class_files(self) -> dict[str, str]:
        """Return the files below /sys/class as they are now."""
        found = host_files.files(self.ports)
        return {path: text for path, text in found.items() if path.startswith("/sys/class/")}

    def _installed(self, program: str) -> str | None:
        name = program.rpartition("/")[2]
        optional = name in TOOLS or name == "mstlink"
        if name not in self.programs or (optional and name not in self._software.tools):
            return None
        return name

    def _delayed(self, outcome: ProgramOutcome) -> ProgramOutcome:
        network = self._draws.duration(self._delay) + self._draws.duration(self._delay)
        return outcome._replace(took=outcome.took + network)

    # ------------------------------------------------------------------------- ethtool

    def _ethtool(self, arguments: Sequence[str]) -> ProgramOutcome:
        options = [each for each in arguments if each.startswith("-")]
        netdevs = [each for each in arguments if not each.startswith("-")]
        as_json = not {"--json", "-j"}.isdisjoint(options)
        asked = [each for each in options if each not in ("--json", "-j", "-I")]
        if asked in (["-s"], ["--change"], ["--set-fec"]) and len(netdevs) > 1:
            return self._set(self._by_netdev(netdevs[0]), asked[0], netdevs[1:])
        if asked in (["-m"], ["--module-info"]) and len(netdevs) > 1:
            return ProgramOutcome(self._module_memory(*netdevs), took=_TOOK["module"])
        if len(netdevs) != 1 or len(asked) > 1:
            raise _Failure(
                1, "ethtool: bad command line argument(s)\nFor more information run ethtool -h\n"
            )
        port = self._by_netdev(netdevs[0])
        match asked[0] if asked else "":
            case "":
                return ProgramOutcome(ethtool_format.settings(port), took=_TOOK["ethtool"])
            case "-m" | "--module-info":
                return ProgramOutcome(self._module(port, as_json=as_json), took=_TOOK["module"])
            case "-S" | "--statistics":
                return ProgramOutcome(
                    ethtool_format.statistics(port, self._software.driver), took=_TOOK["ethtool"]
                )
            case "-i" | "--driver":
                text = ethtool_format.driver(self.ports.index(port), self._software.driver)
                return ProgramOutcome(text, took=_TOOK["ethtool"])
            case "-a" | "--show-pause":
                return ProgramOutcome(ethtool_format.pause(port), took=_TOOK["ethtool"])
            case "--show-fec":
                text = ethtool_format.fec(
                    port,
                    self._software.driver,
                    counted="-I" in options,
                    as_json=as_json,
                    histogram=self._software.fec_histogram,
                )
                return ProgramOutcome(text, took=_TOOK["ethtool"])
            case unknown:
                raise _Failure(1, f"ethtool: bad command line argument(s) {unknown}\n")

    def _set(self, port: SimulatedPort, option: str, arguments: Sequence[str]) -> ProgramOutcome:
        """`ethtool --set-fec IF encoding E...` or `ethtool -s IF ...` of the port's one speed."""
        if option == "--set-fec":
            names = [_ENCODINGS.get(each.lower()) for each in arguments[1:]]
            known = [each for each in names if each is not None]
            if arguments[0] != "encoding" or len(known) < len(names) or not known:
                raise _Failure(1, "ethtool (--set-fec): bad parameter\n")
            if len(known) > 1 or known[0] not in ("Auto", "RS", "Off"):
                raise _Failure(75, "netlink error: Operation not supported\n")
            port.fec_encodings = ("Auto", "RS") if known == ["Auto"] else (known[0],)
            return ProgramOutcome("", took=_TOOK["ethtool"])
        head, _, modes = " ".join(arguments).partition(" advertise ")
        stated = dict(zip(head.split()[::2], head.split()[1::2], strict=True))
        if stated.get("speed", str(port.spec.rate_bps // 1_000_000)) != str(
            port.spec.rate_bps // 1_000_000
        ):
            raise _Failure(75, "netlink error: Invalid argument\n")
        port.auto_negotiation = stated["autoneg"] == "on"
        port.advertises_all = port.auto_negotiation and " off" not in modes
        return ProgramOutcome("", took=_TOOK["ethtool"])

    def _by_netdev(self, netdev: str) -> SimulatedPort:
        for port in self.ports:
            if port.spec.netdev == netdev:
                return port
        raise _Failure(75, "netlink error: No such device\n")

    def _module(self, port: SimulatedPort, *, as_json: bool) -> str:
        if port.spec.transceiver is None:
            raise _Failure(1, "netlink error: Input/output error\n")
        if as_json and self._software.module_json != "none":
            repeating = self._software.module_json == "repeating"
            return ethtool_json_format.module(port, repeating=repeating)
        older = self._software.module_json == "none"
        return ethtool_format.module(port, state_key="Module State" if older else "Module state")

    def _module_memory(self, netdev: str, *arguments: str) -> str:
        """A part of one page; only modules of eight lanes have CMIS and more than page 0."""
        port = self._by_netdev(netdev)
        stated = dict(zip(arguments[::2], arguments[1::2], strict=True))
        page, offset = (int(stated.get(key, "0"), 0) for key in ("page", "offset"))
        length, address = (
            int(stated.get(key, default), 0)
            for key, default in (("length", "128"), ("i2c", "0x50"))
        )
        memory = cmis_memory.read(port, address, page, offset, length)
        if memory is None:
            raise _Failure(1, "netlink error: Input/output error\n")
        return ethtool_format.dump(memory, offset)

    # ------------------------------------------------------------------------- mlxlink

    def _mlxlink(self, arguments: Sequence[str]) -> ProgramOutcome:
        options, flags = _options(arguments)
        as_json = "--json" in flags
        if as_json and not self._software.mlxlink_json:
            raise _Failure(1, "-E- failed to parse arguments. Unknown flag: json\n", _ERROR)
        port = self._by_rdma(options.get("-d", options.get("--device", "")))
        configured = self._configure(port, options, flags)
        if path := options.get("--amber_collect"):
            header, row = mlxlink_format.collection(port, timers=self._software.mlxlink_timers)
            before = self._collected.get(path)
            self._collected[path] = f"{before or header}\n{row}"
            return ProgramOutcome("", took=_TOOK["mlxlink"])
        sections = mlxlink_format.report(
            port,
            module="-m" in flags,
            counters="-c" in flags,
            paths=self._software.mlxlink_paths,
        )
        if as_json:
            text = mlxlink_format.as_json(sections, configured)
        else:
            lines = "".join(f"\n{line}...\n" for line in configured)
            text = lines + mlxlink_format.as_text(sections)
        return ProgramOutcome(text, took=_TOOK["mlxlink"])

    def _by_rdma(self, device: str) -> SimulatedPort:
        for port in self.ports:
            if device and port.spec.rdma == device and self._software.driver == "mlx5_core":
                return port
        raise _Failure(
            1, f'-E- Failed to open device: "{device}", No such file or directory\n', _ERROR
        )

    def _configure(
        self, port: SimulatedPort, options: Mapping[str, str], flags: Collection[str]
    ) -> list[str]:
        if "--pc" in flags:
            port.clear()
        match options.get("--test_mode"):
            case "EN":
                rx, tx = (options.get(f"--{side}_prbs", "PRBS31") for side in ("rx", "tx"))
                port.enter_test_mode(rx, tx)
                return ["Configuring Port to Physical Test Mode"]
            case "DS":
                if port.prbs is not None:
                    port.leave_test_mode()
                return ["Configuring Port to Regular Operation"]
            case "TU" if port.prbs is not None:
                port.prbs.tuned = True
                return ["Performing Tuning"]
            case "TU":
                raise _Failure(
                    1,
                    "-E- Port is not configured for physical test mode. Please see help\n",
                    _ERROR,
                )
        return []

    # ----------------------------------------------------------------- the kernel's own

    def _rdma(self, arguments: Sequence[str]) -> ProgramOutcome:
        return ProgramOutcome(iproute_format.rdma(self.ports, as_json="-j" in arguments))

    def _ip(self, arguments: Sequence[str]) -> ProgramOutcome:
        tokens = [each for each in arguments if not each.startswith("-")]
        if tokens[:3] == ["link", "set", "dev"] and tokens[4:] in (["up"], ["down"]):
            port = self._by_netdev(tokens[3])
            self._laser(port.spec.port, tokens[4] == "up")
            port.enabled(up=tokens[4] == "up")
            return ProgramOutcome("")
        if (kind := _ip_object(tokens)) is None:
            raise _Failure(255, f'Object "{" ".join(tokens)}" is unknown, try "ip help".\n')
        wanted = _ip_device(tokens)
        if not {"-j", "-json", "--json"}.isdisjoint(arguments):
            if kind == "address":
                text = iproute_format.addresses_json(self.ports, wanted)
            else:
                text = iproute_format.ip(self.ports, wanted, detailed=arguments.count("-s") > 1)
        else:
            brief = not {"-br", "-brief", "--brief"}.isdisjoint(arguments)
            text = iproute_format.text(self.ports, wanted, kind, brief=brief)
        if text is None:
            raise _Failure(1, f'Device "{wanted}" does not exist.\n')
        return ProgramOutcome(text)

    def _ibstat(self, arguments: Sequence[str]) -> ProgramOutcome:
        names = [each for each in arguments if not each.startswith("-")]
        if "-l" in arguments:
            return ProgramOutcome(infiniband_format.names(self.ports))
        text = infiniband_format.ibstat(self.ports, names[0] if names else None)
        if text is None:
            raise _Failure(255, f"ibpanic: [1] main: stat of IB device '{names[0]}' failed\n")
        return ProgramOutcome(text)

    def _ibdev2netdev(self, arguments: Sequence[str]) -> ProgramOutcome:
        return ProgramOutcome(infiniband_format.ibdev2netdev(self.ports))

    def _cat(self, paths: Sequence[str]) -> ProgramOutcome:
        return ProgramOutcome(
            *host_files.cat(
                {**host_files.files(self.ports), **self._written, **self._collected}, paths
            )
        )

    def _rm(self, paths: Sequence[str]) -> ProgramOutcome:
        for path in paths:
            self._collected.pop(path, None)
        return self._remove_further(paths) if self._remove_further else ProgramOutcome("")

    def _grep(self, arguments: Sequence[str]) -> ProgramOutcome:
        flags, pattern, *paths = arguments
        if flags not in ("-rHs", "-Hs") or pattern != ".":
            raise _Failure(2, "grep: this simulated one knows `-rHs .` and `-Hs .` only\n")
        return ProgramOutcome(*host_files.grep(host_files.files(self.ports), paths))

    def _readlink(self, arguments: Sequence[str]) -> ProgramOutcome:
        found = {
            f"/sys/class/net/{port.spec.netdev}/device": n for n, port in enumerate(self.ports)
        }
        if arguments[:1] != ["-f"] or len(arguments) != 2 or arguments[1] not in found:
            raise _Failure(1, "")
        return ProgramOutcome(f"{host_files.pci_folder(found[arguments[1]])}\n")

    def _uname(self, arguments: Sequence[str]) -> ProgramOutcome:
        known = {"-r": self._software.kernel, "-n": f"SIM-{self._name}", "-m": "x86_64"}
        if list(arguments) != ["-a"]:
            return ProgramOutcome(f"{known.get(' '.join(arguments), 'Linux')}\n")
        return ProgramOutcome(
            f"Linux SIM-{self._name} {self._software.kernel} #1 SMP x86_64 GNU/Linux\n"
        )

    def _command(self, arguments: Sequence[str]) -> ProgramOutcome:
        """`command -v TOOL`, which a shell answers itself."""
        found = self._installed(arguments[-1])
        return ProgramOutcome(f"/usr/sbin/{found}\n") if found else ProgramOutcome("", status=127)


def _options(arguments: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Options with a value, and flags: an option has a value if no other option follows."""
    options, flags = {}, set()
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        if argument.startswith("-"):
            if following.startswith("-"):
                flags.add(argument)
            else:
                options[argument] = following
    return options, flags


def _ip_object(tokens: Sequence[str]) -> str | None:
    """Return the object of an ip command, which may be abbreviated; None if it is not known."""
    for kind in ("address", "link"):
        if tokens and kind.startswith(tokens[0]):
            return kind
    return None


def _ip_device(tokens: Sequence[str]) -> str | None:
    """Return the device that `ip OBJECT [show] [dev] IF` names, if any."""
    rest = list(tokens[1:])
    if rest and any(verb.startswith(rest[0]) for verb in ("show", "list", "ls")):
        del rest[0]
    return next((each for each in rest if each != "dev"), None)
