"""Testbed files of lists of cables, read again with csv and yaml alone."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from lightrig.harness.cli.app import application

CABLINGS = Path(__file__).with_name("cablings")
SIZE = 64
"""Ingress ports of the switches of these labs, Coherent DLXA64B64 (sonic_sc02a_devices.csv)."""

NETBOX_NAMES = """\
device,port,name,kind,model,size,address,place,rate
ocs-lab,,ocs,optical,polatis,8x12,tl1://ocs.invalid,"rack 7, U12",
ocs-lab,Port 1,1>20,,,,,,
dgx-07,,server0,server,,,,rack 3,
dgx-11,,server1,server,,,ssh://bench@dgx-11.invalid,,200G
dgx-07,ens1f0np0,nic0.p0,,,,,,
dgx-07,ens1f1np1,nic0.p1,,,,,,
leaf-2,,tor,packet,sn3700,,,,
leaf-2,Ethernet1/3,3,,,,,,
PP-A3,,panel A3,panel,,,,,
"""


def run(command: str, *arguments: object) -> Result:
    return CliRunner().invoke(application(command), [command, *map(str, arguments)])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fibers_of(file: Path) -> list[tuple[str, str]]:
    """Read the fibers of a testbed file, as a person does, in the file's order."""
    found = []
    for line in yaml.safe_load(file.read_text())["fibers"]:
        text = line["fiber"] if isinstance(line, dict) else line
        source, sink = re.fullmatch(r"(\S+) -> (\S+)", text).groups()  # type: ignore[union-attr]
        found.append((source, sink))
    return found


def names_of(rows: list[dict[str, str]], *, explicit: bool) -> tuple[str, dict[str, list[int]]]:
    """Return a file of names, and the port numbers of each "device port" of a packet switch.

    explicit: whether the file numbers the ports, from the last of the list on; else the order does.
    """
    out = io.StringIO()
    written = csv.writer(out)
    written.writerow(("device", "port", "name", "kind", "size"))
    devices = dict.fromkeys(row["StartDevice"] for row in rows)
    for at, device in enumerate(dict.fromkeys(row["EndDevice"] for row in rows)):
        written.writerow((device, "", f"ocs{at}", "optical", f"{SIZE}x{SIZE}"))
    numbers: dict[str, list[int]] = {}
    for device in devices:
        written.writerow((device, "", "", "packet", ""))
        number, own = 1, [row for row in rows if row["StartDevice"] == device]
        for row in reversed(own) if explicit else own:
            lanes = len(row["EndPort"].split("|"))
            numbers[f"{device} {row['StartPort']}"] = list(range(number, number + lanes))
            if explicit:
                name = f"[{number}-{number + lanes - 1}]" if lanes > 1 else str(number)
                written.writerow((device, row["StartPort"], name, "", ""))
            number += lanes
    return out.getvalue(), numbers


@pytest.mark.parametrize(
    ("lab", "explicit", "cables", "fibers"),
    [
        ("str3", True, 8, 16),
        ("str3", False, 8, 16),
        pytest.param("sc02a", False, 648, 1296, marks=pytest.mark.long),
        pytest.param("ixia", True, 310, 800, marks=pytest.mark.long),
        pytest.param("ixia", False, 310, 800, marks=pytest.mark.long),
    ],
)
def test_lists_of_sonic_labs(
    tmp_path: Path, lab: str, explicit: bool, cables: int, fibers: int
) -> None:
    """Each number is a pair, ingress n and egress 64 + n; four numbers are four fibers each way."""
    listed = CABLINGS / f"sonic_{lab}_l1_links.csv"
    rows = rows_of(listed)
    assert len(rows) == cables
    text, numbers = names_of(rows, explicit=explicit)
    (tmp_path / "names.csv").write_text(text)
    file = tmp_path / "lab.yaml"
    ended = run("init", file, "--cabling", listed, "--names", tmp_path / "names.csv", "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout) == {"fibers": fibers, "left": []}
    names = {row["device"]: row["name"] for row in rows_of(tmp_path / "names.csv")[:10**4]
             if not row["port"] and row["name"]}  # fmt: skip
    expected = []
    for row in rows:
        ends = row["EndPort"].split("|")
        for number, end in zip(
            numbers[f"{row['StartDevice']} {row['StartPort']}"], ends, strict=True
        ):
            port, ocs = f"{row['StartDevice']}.{number}", names[row["EndDevice"]]
            expected += [(port, f"{ocs}.{end}"), (f"{ocs}.{SIZE + int(end)}", port)]
    assert fibers_of(file) == expected
    assert len(expected) == fibers
    assert run("check", file).exit_code == 0


def netbox(folder: Path, *, cables: str | None = None, names: str = NETBOX_NAMES) -> Result:
    listed = folder / "cables.csv"
    # As Windows and NetBox write it: with a mark of the byte order and CRLF.
    text = (CABLINGS / "netbox_cables.csv").read_text() if cables is None else cables
    listed.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (folder / "names.csv").write_text(names)
    names_file = folder / "names.csv"
    return run("init", folder / "lab.yaml", "--cabling", listed, "--names", names_file)


def test_a_list_of_netbox(tmp_path: Path) -> None:
    ended = netbox(tmp_path)
    assert ended.exit_code == 0, ended.output
    assert [line for line in ended.output.splitlines() if line.startswith("left out")] == [
        "left out  cables.csv:7 ocs-lab Port 8 - dgx-11 ens4np0: its status is planned",
        "left out  cables.csv:10 dgx-07 bmc - mgmt-1 Gi0/7: mgmt-1 is not in names.csv",
        "left out  cables.csv:11 dgx-11 ens5np0 - PP-A3 14: 1 cables are at panel A3 port 14, "
        "expected one in front and one behind",
    ]
    file = tmp_path / "lab.yaml"
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    assert fibers_of(file) == [
        ("server0.nic0.p0", "ocs.5"), ("ocs.13", "server0.nic0.p0"),
        ("server0.nic0.p1", "ocs.2"), ("ocs.10", "server0.nic0.p1"),
        ("ocs.15", "server1.nic0"), ("server1.nic0", "ocs.7"),
        ("tor.3", "ocs.1"), ("ocs.20", "tor.3"),
        ("tor.1", "server1.nic1"), ("server1.nic1", "tor.1"),
    ]  # fmt: skip
    first, back = document["fibers"][:2]
    assert (first["label"], first["via"]) == ("F-0117 / T-12", ["panel A3 port 12"])
    assert (back["label"], back["via"]) == ("F-0117 / T-12", ["panel A3 port 12"])
    assert document["fibers"][4]["label"] == "F (7), short"
    assert document["switches"]["ocs"]["place"] == "rack 7, U12"
    assert document["switches"]["tor"]["ports"] == 3
    nics = {name: one["nics"] for name, one in document["servers"].items()}
    assert nics["server0"]["nic0"]["netdev"] == "ens1f{p}np{p}"
    assert [nic["netdev"] for nic in nics["server1"].values()] == ["ens3np0", "ens9np0"]
    assert nics["server1"]["nic0"]["rate"] == "200G"
    assert "transceiver" not in nics["server1"]["nic1"]
    assert run("check", file).exit_code == 0
    printed = run("plan", file, "--cables", "--json")
    assert json.loads(printed.stdout)[0]["from_place"] == "rack 3"


HEAD = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,label\n"
PORT = "dcim.interface"


@pytest.mark.parametrize(
    ("cables", "problem"),
    [
        ("", "cables.csv:1:1: is empty"),
        (
            "ID,Label,Termination A,Termination B,Status\n1,x,a,b,Connected\n",
            "cables.csv:1:1: has the columns that NetBox displays, which name no ports for "
            "certain; choose an export template",
        ),
        (
            "Device A,Termination A,Device B,Termination B\na,1,b,2\n",
            "cables.csv:1:1: has the columns that NetBox displays",
        ),
        (
            "StartDevice,StartPort,EndDevice,EndPort,BandWidth,VlanID,VlanMode\n"
            "a,Ethernet0,b,Ethernet4,100000,1681,Access\n",
            "cables.csv:1:1: is a list of links between packet switches",
        ),
        (HEAD.replace(",", ";"), "cables.csv:1:1: found ';' between columns, expected ','"),
        (HEAD.replace(",", "\t"), "cables.csv:1:1: found '\\t' between columns"),
        (HEAD.replace("side_b_name", "side_b_nam"), "did you mean 'side_b_nam'"),
        (HEAD.replace("label", "side_a_name"), "found the column 'side_a_name' twice"),
        (
            f"{HEAD}dgx-07,{PORT},,ocs-lab,{PORT},Port 5,F-1\n",
            "cables.csv:2:23: found no side_a_name",
        ),
        (f"{HEAD}\n,{PORT},x,ocs-lab,{PORT},5,F-1\n", "cables.csv:3:1: found no side_a_device"),
        (f"{HEAD}dgx-07,{PORT},x\n", "cables.csv:2:1: found 3 columns, expected the header's 7"),
        (
            f"{HEAD}dgx-07,{PORT},x,ocs-lab,{PORT},Port 5,\n"
            f"dgx-11,{PORT},y,ocs-lab,{PORT},Port 5,\n",
            "cables.csv:3:48: ocs-lab Port 5 has two cables, the first in line 2",
        ),
        (f'{HEAD}dgx-07,{PORT},"x,ocs-lab\n', "is no CSV"),
        (
            f"{HEAD}dgx-07,{PORT},x,ocs-lab,{PORT},Port 9,\n",
            "cables.csv:2:1: found port '9' of ocs, expected 1 to 8",
        ),
        (
            f"{HEAD}dgx-07,{PORT},x,ocs-lab,{PORT},In,\n",
            "cables.csv:2:1: found port 'In' of ocs, expected one number in it, or a line for it",
        ),
        (f"{HEAD}a,{PORT},x,b,{PORT},y,\n", "joins no two devices of"),
        (
            "StartDevice,StartPort,EndDevice,EndPort\nleaf-2,E1,ocs-lab,3|4\nleaf-2,E2,ocs-lab,4\n",
            "cables.csv:3:19: ocs-lab 4 has two cables, the first in line 2",
        ),
        (
            "StartDevice,StartPort,EndDevice,EndPort\nleaf-2,E1,ocs-lab,\n",
            "cables.csv:2:19: found no EndPort",
        ),
        (
            "StartDevice,StartPort,EndDevice,EndPort\ndgx-07,e1,ocs-lab,1|2|3|4\n",
            "it has 4 fibers each way, and a NIC port has one",
        ),
    ],
)
def test_lists_with_mistakes_are_located(tmp_path: Path, cables: str, problem: str) -> None:
    ended = netbox(tmp_path, cables=cables)
    assert ended.exit_code == 2, ended.output
    assert problem in " ".join(ended.output.split()), ended.output
    assert not (tmp_path / "lab.yaml").exists()


@pytest.mark.parametrize(
    ("changed", "by", "problem"),
    [
        ("dgx-07,,server0,server", "dgx-07,,server0,servr", "names.csv:4:17: found kind 'servr'"),
        (",8x12,", ",,", "names.csv:2:1: found no size of ocs"),
        ("dgx-11,,server1", "dgx-11,,server0", "server0 is the name of two devices, first in"),
        ("leaf-2,,tor,packet,sn3700,,,,\n", "", "leaf-2 has a line for a port and none for itself"),
        ("Ethernet1/3,3", "Ethernet1/3,nic7", "names.csv:9:1: found 'nic7' for 1 fibers of leaf-2"),
        ("ens1f1np1,nic0.p1", "ens1f1np1,nic0.p0", "server0.nic0.p0 is the name of ens1f0np0 and"),
        ("Port 1,1>20", "Port 1,1>21", "names.csv:3:1: found port '1>21' of ocs"),
        ("Port 1,1>20", "Port 1,1>15", "port 15 of ocs has two names, 'Port 7' and 'Port 1'"),
        ("ens1f1np1,nic0.p1", "ens1f1np1,nic1", "4:1: server0 has nic0.p0, expected nic0"),
        ("ens1f1np1,nic0.p1", "ens1f1np1,nic0.p2", "names.csv:4:1: server0 has nic0.p0, nic0.p2,"),
        ("f1np1,nic0.p1", "f1np1,nic0", "nic0, expected nic0.p0, nic0.p1 for ens1f0np0, ens1"),
        (",,200G", ",,fast", "expected a rate in bit/s, e.g. '100G', in: nic0: {netdev"),
        ("tl1://ocs.invalid", "tl1://a:b9x@ocs.invalid", "found a password in an address"),
        ("ocs-lab,,ocs,", "ocs-lab,,o.s,", "names.csv:2:10: found 'o.s', expected a name"),
        ("place,rate", "place,rat", "found the unknown column 'rat'; did you mean 'rate'?"),
        ("polatis", "polatys", "no driver for the model 'polatys'; did you mean 'polatis'?"),
        ("nic0.p1,,,,,,\n", "nic0.p1,,,,,,\ndgx-07,ens1f1np1,nic1,,,,,,\n", "named twice, first"),
    ],
)  # fmt: skip
def test_names_with_mistakes_are_located(
    tmp_path: Path, changed: str, by: str, problem: str
) -> None:
    assert changed in NETBOX_NAMES
    ended = netbox(tmp_path, names=NETBOX_NAMES.replace(changed, by, 1))
    assert ended.exit_code == 2, ended.output
    assert problem in " ".join(ended.output.split()), ended.output
    assert "b9x" not in ended.output
    assert not (tmp_path / "lab.yaml").exists()


def test_one_list_without_the_other_is_refused(tmp_path: Path) -> None:
    ended = run("init", tmp_path / "lab.yaml", "--names", tmp_path / "names.csv")
    assert ended.exit_code == 2
    assert "given together" in ended.output
