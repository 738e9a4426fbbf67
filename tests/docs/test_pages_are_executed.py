"""Every command of the documentation is run by bash, as a reader runs it.

Each page has a folder like a checkout's, with the files that the page shows, a reader's testbed
`mine.yaml`, and results of a run. The commands run in the order of the page and in one state of
leases. Only `PYTEST_ADDOPTS` shortens what they do.

`ELSEWHERE` and `ENDS` are all exceptions: commands that do not run here, each with its reason or
with the place where CI runs it, and commands that have to end with another status than 0, as
those that ask for a lab where there is none.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from distributions import write_metadata
from pages import PAGES, README, ROOT, named_files, path_of, shell_commands

BIN = Path(sys.executable).parent
SERVES = "lightrig serve *"
ORCHESTRATES = "lightrig orchestrate *"

ELSEWHERE = {
    # command, as a pattern: a file that runs it, or a reason
    "make install": ".ci/run",
    "make install lint test": ".ci/run",
    "make test-clients": ".github/workflows/nightly.yml",
    "python3 -m venv .venv": "the shell of this test has the environment",
    ". .venv/bin/activate": "the shell of this test has the environment",
    "pip install 'lightrig[[]*[]]'": "needs a package index with a release",
    "pip install '.[[]torch[]]'": "two gigabytes; `make test-torch` installs it in CI",
    "pip install '.[[]torchft[]]'": "two gigabytes; tests/servers/test_torchft.py uses it",
    "lightrig init mine.yaml": "tests/cli/test_init.py",  # asks, on a terminal
    "podman *": "Makefile",
    "systemctl *": "needs systemd, and changes the machine",
    "install -d *": "changes the machine, as root",
    "* kubernetes *": "needs a cluster; tests/cli and tests/runs try the file",
    "lightrig agent *": "tests/orchestration/test_agent_command.py",
    "lightrig orchestrate acos *": "tests/orchestration/test_agents_over_wires.py",
    "lightrig orchestrate opus *": "tests/cli/test_train_beside_others.py",
    "lightrig orchestrate mixnet *": "tests/cli/test_train_beside_others.py",
    "lightrig orchestrate * --standby": "tests/orchestration/test_orchestrate_command.py",
    "srun *": "tests/examples/test_slurm_ring.py",
    "* slurm *": "needs a cluster; tests/cli and tests/runs try the script",
    "lightrig claims * --scheduler *": "needs a Dask scheduler at 10.0.0.5",
    "lightrig out *": "tests/cli/test_out_and_in.py",
    "lightrig in *": "tests/cli/test_out_and_in.py",
    "lightrig trial *": "tests/cli/test_trial.py",
    "lightrig results * s3://*": "needs an object store in the network",
    "python -m benchmarks.mixnet_training": "half an hour, and PyTorch",
    "python -m benchmarks.mixnet_baselines": "ten minutes, and PyTorch",
    "lightrig train * -- train.py *": "tests/cli/test_train.py",
    "lightrig simulate traces/mine *": "tests/workloads/test_recorded_steps.py",
    "lightrig train * -- examples/train_moe.py *": "tests/systems/mixnet/test_mixnet_delegation.py",
    "lightrig train * -- examples/train_moe_3d.py *": "tests/systems/mixnet/test_mixnet_regions.py",
    "lightrig train * -- examples/train_pipeline.py *": "tests/cli/test_train_like_torchrun.py",
    "MIXNET_TOKENS=FILE *": "needs a recorded trace, of which none may be redistributed",
    "python -m benchmarks.lab_in_a_box": "ten minutes, as root; tests/cli/test_lab_in_a_box.py",
    "ssh -p 17001 *": "tests/cli/test_lab_in_a_box.py",
    "python tests/conformance/transcripts.py acme-osw": "rewrites files of the checkout",
    "lightrig survive * --number 20 *": "some ten minutes; tests/cli/test_survive.py",
    "lightrig survive lab.yaml * --command *": "tests/cli/test_survive_outcomes.py",
    "pip install .": "tests/structure/test_public_modules.py",
    "lightrig check bench.yaml --declarations *": "tests/structure/test_public_modules.py",
    "pytest test_launched_power.py *": "tests/structure/test_public_modules.py",
    "pytest tests/conformance": ".ci/run",
    "make generated": "rewrites files of the checkout",
    "make test-virtual-lab *": ".github/workflows/virtual-lab.yml",
    "make virtual-lab": ".github/workflows/virtual-lab.yml",
    "apt install *": "changes the machine, as root",
    ". build/virtual-lab/environment": "needs the virtual lab",
    "* build/virtual-lab/*": "needs the virtual lab; .github/workflows/virtual-lab.yml",
    "pytest suites/test_soak.py *": "tests/runs/test_soaks.py",  # for three days
    "lightrig known mine.yaml *": "tests/runs/test_messages_of_mornings.py",
    "lightrig results bundle *": "tests/cli/test_results_bundle.py",
    "lightrig replay *": "tests/cli/test_results_bundle.py",
    "make affected": "runs the tests of a whole checkout: tests/structure/test_affected.py",
}

NO_LAB = r"did not answer at|not be reached|does not answer|no such file|No such file"
ENDS = {
    # (page, command) as patterns: exit statuses, and what is printed
    ("*", "lightrig doctor served.yaml --yes"): ((1, 3), NO_LAB),
    ("*", "lightrig doctor mine.yaml"): ((1, 3), NO_LAB),
    ("*", "lightrig doctor mine.yaml --read-only"): ((1, 3), NO_LAB),
    ("*", "lightrig doctor testbeds/mine.yaml --*"): ((1, 3), NO_LAB),
    ("*", "lightrig reference mine.yaml"): ((1, 2, 3), NO_LAB),
    ("*", "lightrig apply testbeds/mine.yaml crossed"): ((3,), NO_LAB),
    ("*", "lightrig connect testbeds/mine.yaml *"): ((3,), NO_LAB),
    ("*", "lightrig disconnect testbeds/mine.yaml *"): ((3,), NO_LAB),
    ("*", "lightrig get testbeds/mine.yaml *"): ((3,), NO_LAB),
    ("*", "lightrig live testbeds/mine.yaml *"): ((3,), NO_LAB),
    ("*", "pytest * --instruments hardware"): ((1, 3), NO_LAB),
    # Nothing sees the light of that switch, which its profile requires.
    ("docs/how-to/certify.md", "lightrig certify docs/sheets/sonic.yaml *"): (
        (1,),
        "3.1.*not tested",
    ),
    ("docs/ownership.md", "lightrig restore * --owner ann"): ((2,), "no account 'ann'"),
    # What the faults break fails, and may not be as it was found: the page says so.
    ("docs/faults.md", "pytest *"): ((0, 1, 6), r"\d+ (failed|passed)"),
    # Which ranks of Open MPI take which others for dead is a race, which the page says.
    ("docs/how-to/faults-by-light.md", "lightrig survive * --library openmpi *"): (
        (0, 1),
        r"(?m)^(unharmed|stalled, then went on|re-formed|error): 1$",
    ),
    # A hardware night, whose lab is not here.
    ("docs/nights.md", "lightrig night lab.yaml"): ((1, 2, 3), "."),
    # A claim may differ after so few samples; exit status 1 says so.
    ("*", "lightrig claims *"): ((0, 1), "agrees|differs"),
    # Few samples bound nothing; drift is not what is tried here.
    ("*", "lightrig results compare *"): ((0, 1), "."),
    ("*", "lightrig history testbeds/mine.yaml *"): ((0, 2), "ocs.1"),
}

# Needs PyTorch, network namespaces and minutes each: collected only.
COLLECTED = (
    "pytest suites/claims/test_opus_training*",
    "pytest suites/claims/test_opus_scale_up*",
    "pytest suites/claims/test_mixnet_training*",
    "pytest suites/claims/test_mixnet_traffic*",
    "pytest suites/claims/test_railx.py --testbed testbeds/railx5.yaml *",
    "pytest suites/claims/test_railx_chips.py *",
)

SERVED_THROUGHOUT = ("docs/how-to/at-the-bench.md",)
"""Pages whose commands use the lab that they serve first."""

WITH_COMMANDS = [page for page in PAGES if shell_commands(page)]


def elsewhere(command):
    """Return the file that runs `command` or the reason for which none does, if it is declared."""
    return next((why for each, why in ELSEWHERE.items() if fnmatch(command, each)), None)


def expected(page, command):
    """Return the exit statuses that `command` may have, and what it must print."""
    for (pages, commands), ends in ENDS.items():
        if fnmatch(path_of(page), pages) and fnmatch(command, commands):
            return ends
    return (0,), ""


def test_every_exception_is_of_a_command_and_names_what_exists():
    commands = [command for page in PAGES for command in shell_commands(page)]
    for pattern, why in ELSEWHERE.items():
        assert any(fnmatch(command, pattern) for command in commands), pattern
        for name in re.findall(r"(?:tests|\.ci|\.github)/[\w./-]+", why):
            assert (ROOT / name).exists(), name
    for _, pattern in ENDS:
        assert any(fnmatch(command, pattern) for command in commands), pattern
    for pattern in COLLECTED:
        assert any(fnmatch(command, pattern) for command in commands), pattern
    assert sum(elsewhere(command) is None for command in commands) >= 60


@pytest.fixture
def checkout(tmp_path):
    """A folder like a checkout's, with a reader's testbed."""
    for name in ("examples", "suites", "tests", "benchmarks", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    ignored = shutil.ignore_patterns("*.py", "__pyc*")
    shutil.copytree(ROOT / "testbeds", tmp_path / "testbeds", ignore=ignored)
    shutil.copytree(ROOT / "docs/sheets", tmp_path / "docs/sheets")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    block = re.search(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    for file in ("mine.yaml", "testbeds/mine.yaml"):
        (tmp_path / file).write_text(block[1])
    return tmp_path


@pytest.fixture
def environment(tmp_path_factory):
    """Environment of a reader's shell, with the packages that pages show as installed."""
    site = tmp_path_factory.mktemp("site")
    tests = ROOT / "tests"
    shown = [tests / "drivers_by_others" / "acme", tests / "systems_by_others" / "carousel"]
    for package in shown:
        write_metadata(package, site)
    home = tmp_path_factory.mktemp("home")
    (home / "state").mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (site, *shown, ROOT))),
        "LIGHTRIG_STATE": str(home / "state"),
        "OCS_LOGIN": "admin:secret",
        "PYTEST_ADDOPTS": "--samples 2 --seed 1 -p no:cacheprovider",
        "COLUMNS": "200",
    }


def prepare(page, folder, shell):
    """Write the files that a page shows, and what its commands suppose."""
    text = page.read_text(encoding="utf-8")
    for name, content in named_files(page).items():
        if not name.startswith("/") and not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    if "lightrig init mine.yaml --defaults" in text:
        (folder / "mine.yaml").unlink()  # it overwrites nothing
    if "test_mine.py" in text:
        (folder / "test_mine.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    if "test_carousel.py" in text:
        shown = ROOT / "tests" / "systems_by_others" / "carousel" / "test_carousel.py"
        shutil.copy(shown, folder)
    if re.search(r"^lightrig (results|report)", text, re.MULTILINE):
        for _ in range(2):
            measured = shell("pytest suites/test_reconfiguration.py --testbed testbeds/mine.yaml")
            assert measured.returncode == 0, measured.stdout


@pytest.mark.long
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=path_of)
def test_commands_of_a_page_do_as_it_says(page, checkout, environment):
    def shell(command, **more):
        return subprocess.run(
            ["bash", "-c", command], cwd=checkout, env={**environment, **more}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=1000, check=False,
        )  # fmt: skip

    prepare(page, checkout, shell)
    wrong = []
    orchestrated = any(fnmatch(each, ORCHESTRATES) for each in shell_commands(page))
    used = orchestrated or path_of(page) in SERVED_THROUGHOUT
    with contextlib.ExitStack() as lab, contextlib.ExitStack() as service:
        for written in shell_commands(page):
            command = written.replace(" FILE", " testbeds/mine.yaml")
            if "20260314-021500" in written:
                first = min((checkout / "results" / "runs").iterdir())
                command = command.replace("20260314-021500", first.name)
            if elsewhere(written) is not None:
                continue
            if fnmatch(command, ORCHESTRATES) and "--ask" not in command:
                service.close()  # that of another fabric, which has the same port
                service.enter_context(serving(command, "Ctrl-C ends it", checkout, environment))
                continue
            if fnmatch(command, SERVES) and used:
                lab.enter_context(serving(f"{command} --port 0", "export ", checkout, environment))
                continue
            if fnmatch(command, SERVES):
                with serving(
                    f"{command} --port 0", "Ctrl-C ends it", checkout, environment
                ) as ended:
                    pass
            elif any(fnmatch(command, each) for each in COLLECTED):
                ended = shell(f"{command} --collect-only -q")
            else:
                ended = shell(command.replace("/var/lib/node_exporter/", ""))
            statuses, printed = expected(page, written)
            if ended.returncode not in statuses or not re.search(printed, ended.stdout):
                last = "\n".join(ended.stdout.splitlines()[-15:])
                wrong.append(f"{command}\nends with {ended.returncode}\n{last}")
    assert not wrong, "\n\n".join(wrong)


@contextlib.contextmanager
def serving(command, until, folder, environment):
    """Start a service, wait for the line with `until`, and end it with Ctrl-C, which is no error.

    Yields how it ended, which is known after that; what it exports is in the environment then.
    """
    ended = subprocess.CompletedProcess(command, None, "")
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            ended.stdout += line
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").strip().partition("=")
                environment[name] = value
            if until in line:
                break
        try:
            yield ended
        finally:
            process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=120)
    ended.stdout, ended.returncode = ended.stdout + rest, process.returncode
    assert not ended.returncode, ended.stdout
