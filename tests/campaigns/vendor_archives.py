"""Archives of a failed test, opened by an ordinary account on a machine without Lightrig.

Here a test of a simulated Polatis fails by a command that the switch denies; its archive is written
twice, as it is and anonymous. On a bare machine (`.ci/bare_machine --user`) Lightrig is installed
from a clone, `lightrig replay` serves each archive, and `lightrig ask` sends the command. The
promise: the driver's error there is the one of the test, but for the tag of the command and for
the times. What was sent and answered is written down here from the manual's form, and not read
from a run.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.campaigns.preloaded import ROOT

PLACE = Path("build") / "vendor_archives"
"""In this checkout and in the clone; Git does not have it."""
LAB = """\
name: lab
switches:
  ocs: {model: polatis, address: "tl1://xc-b17.lab.example.com", size: 16x16, place: rack 7}
servers:
  trainer[0-1]:
    address: "ssh://mkowalski@{name}.lab.example.com"
    nics: {nic0: {netdev: ens1f0, rate: 100G, transceiver: optics}}
transceivers:
  optics: {pmd: 100GBASE-LR4}
fibers:
  - trainer[0-1].nic0 <-> ocs
"""
SUITE = """\
from lightrig.testbeds import Circuit

def test_denied(switches):
    assert Circuit(3, 99) not in switches["ocs"].circuits()
    switches["ocs"].change((), [Circuit(3, 99)]).done()
"""
ERROR = (
    "ocs denied a command",
    "answered  DENY IDNV Invalid OXC port: 99",
    "meaning   a port or a value in the command does not exist on this switch",
    "try       compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
)
"""Lines of the error; TL1's IDNV is "input, data not valid"."""
KINDS = {"plain": (), "anonymous": ("--anonymous",)}
THERE = f"""\
set -eu
python3 -m venv "$HOME/lightrig"
bin=$HOME/lightrig/bin
"$bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt .
place=$PWD/{PLACE}
cd "$HOME"
for kind in {" ".join(KINDS)}; do
    mkfifo "$kind.served"
    "$bin/lightrig" replay "$place/$kind.zip" --write "$kind.yaml" --json >"$kind.served" &
    read -r served <"$kind.served"
    code=0
    LIGHTRIG_REPLAYED=replay:replay "$bin/lightrig" ask "$kind.yaml" ocs 'ENT-PATCH::3,99:1:;' \\
        --yes >"$kind.error" 2>&1 || code=$?
    kill -INT $!
    wait $! || true
    python3 -c 'import json, os, sys; print(json.dumps({{
        "kind": sys.argv[1], "account": os.getuid(), "status": int(sys.argv[2]),
        "error": open(sys.argv[1] + ".error").read()}}))' "$kind" "$code"
done
"""


def main() -> bool:
    """Write the archives, open them there; return whether each error is that of the test."""
    folder = ROOT / PLACE
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(LAB, encoding="utf-8")
    (folder / "test_it.py").write_text(SUITE, encoding="utf-8")
    (folder / "open.sh").write_text(THERE, encoding="utf-8")
    program = Path(sys.executable).with_name("lightrig")
    run = [sys.executable, "-m", "pytest", "test_it.py", "--rootdir", ".", "-p", "no:cacheprovider"]
    run += ["--testbed", "lab.yaml", "--instruments", "simulated", "--results", "results"]
    failed = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    good = failed.returncode == 1 and _is_it(failed.stdout)
    print(f"the test here: {'its error' if good else failed.stdout + failed.stderr}", flush=True)
    for kind, options in KINDS.items():
        command = [program, "results", "bundle", "last", *options, "--output", f"{kind}.zip"]
        subprocess.run(command, cwd=folder, check=True)
    archives = [name for kind in KINDS for name in ("--bring", f"{PLACE}/{kind}.zip")]
    script = f"{PLACE}/open.sh"
    opened = subprocess.run(
        [ROOT / ".ci" / "bare_machine", "--user", *archives, "--bring", script, "sh", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = [json.loads(line) for line in opened.stdout.splitlines() if line.startswith("{")]
    for each in found:
        right = each["status"] == 3 and each["account"] != 0 and _is_it(each["error"])
        print(f"{each['kind']}, account {each['account']}, status {each['status']}:")
        print(each["error"] if not right else "the same error")
        good &= right
    return good and [each["kind"] for each in found] == [*KINDS]


def _is_it(text: str) -> bool:
    """Whether a text has the lines of the error, in their order."""
    at = 0
    for line in ERROR:
        at = text.find(line, at)
        if at < 0:
            return False
    return "ENT-PATCH::3,99:" in text


if __name__ == "__main__":
    sys.exit(not main())
