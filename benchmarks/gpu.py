"""NCCL on circuits: a training job and its losses, a cut, a library, a command, on one card.

    python -m benchmarks gpu

Needs root (network namespaces), a GPU and PyTorch with NCCL, and at most nine minutes. Four ranks
share the card, each in a namespace and, for NCCL, on a host of its own (`NCCL_HOSTID`), so that
their data take the links. Without namespaces or a GPU it says so and ends. `LIGHTRIG_GPU=gloo`
runs the same parts over Gloo on processors, to try the script itself.

1. The script under torchrun; 2. under `lightrig train`, with the same losses; 3. with a cut that a
restart follows; 4. `lightrig survive --library nccl` under a cut; 5. `lightrig survive --command`,
where the command is two ranks of NCCL that print rows as nccl-tests does, under a switch that moves
their circuit away and back. One table, with the card's name, and the waits of part 2.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightrig.instruments.namespaces import namespaces

ROOT = Path(__file__).parents[1]
LIGHTRIG = [sys.executable, "-c", "from lightrig.harness.cli import main; main()"]
BACKEND = os.environ.get("LIGHTRIG_GPU", "nccl")
STEPS = 10
LONGEST_S = {"torchrun": 80, "train": 140, "cut": 160, "survive": 80, "command": 80}
SCRIPT = """
import os
import sys
os.environ.setdefault("NCCL_HOSTID", os.environ["RANK"])
os.environ.setdefault("NCCL_NET", "Socket")
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

backend = sys.argv[2]
kind = "cuda" if backend == "nccl" else "cpu"
if kind == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.use_deterministic_algorithms(True, warn_only=True)
dist.init_process_group(backend)
torch.manual_seed(7)
mesh = init_device_mesh(kind, (2, 2), mesh_dim_names=("replicas", "shards"))
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(3))).to(kind)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    torch.manual_seed(100 * step + dist.get_rank())
    loss = model(torch.randn(32, 256, device=kind)).square().mean()
    print(f"step {step} loss {loss.item()!r}", flush=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
ROWS = """
import os
import sys
import time
rank, device, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ |= {
    "NCCL_HOSTID": str(rank),
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "=" + device,
    "GLOO_SOCKET_IFNAME": device,
}
import torch
import torch.distributed as dist

kind = "cuda" if backend == "nccl" else "cpu"
if kind == "cuda":
    torch.cuda.set_device(0)
dist.init_process_group(backend, init_method=sys.argv[4], rank=rank, world_size=2)
head = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
if not rank:
    print("# nccl-tests rows by torch.distributed", flush=True)
    print("#", head, flush=True)
    print("# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)", flush=True)
while True:
    halves = []
    for _ in range(2):
        began, wrong = time.monotonic(), 0
        for turn in range(20):
            block = torch.full((4096,), float(rank + turn), device=kind)
            dist.all_reduce(block)
            wrong += int((block != 1.0 + 2 * turn).sum())
        took = (time.monotonic() - began) / 20
        rate = 16384 / took / 1e9
        halves += [f"{took * 1e6:.1f}", f"{rate:.4f}", f"{rate:.4f}", str(wrong)]
    if not rank:
        print(" 16384 4096 float sum -1", *halves, flush=True)
"""


def main(_: Sequence[str] = ()) -> None:
    """Run what is possible here, and print the table."""
    if (reason := namespaces.available()) is not None:
        print(f"not run: {reason}")
        return
    card = _card()
    if BACKEND == "nccl" and card is None:
        print("not run: this PyTorch finds no GPU with NCCL")
        return
    print(f"card      {card or 'none: Gloo on processors, a trial of this script'}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(SCRIPT)
        (folder / "rows.py").write_text(ROWS)
        parts: dict[str, Callable[[], str]] = {
            "torchrun": lambda: _torchrun(folder),
            "train": lambda: _train(folder),
            "cut": lambda: _cut(folder),
            "survive": _survive,
            "command": lambda: _command(folder),
        }
        for part, run in parts.items():
            began = time.monotonic()
            try:
                found = run()
            except subprocess.TimeoutExpired:
                found = f"NOT ENDED within {LONGEST_S[part]} s"
            except (LookupError, ValueError, subprocess.CalledProcessError) as error:
                found = f"FAILED: {error}"
            print(f"{part:<9} {time.monotonic() - began:6.1f} s  {found}", flush=True)


def _card() -> str | None:
    """Return the card's name with PyTorch's and NCCL's versions, or None."""
    program = (
        "import torch; print(torch.cuda.get_device_name(), torch.__version__, "
        "*torch.cuda.nccl.version()) if torch.cuda.is_available() else None"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    name = done.stdout.strip()
    return name if done.returncode == 0 and name not in ("", "None") else None


_losses: dict[str, dict[int, list[str]]] = {}


def _run(part: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST_S[part]
    )


def _torchrun(folder: Path) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    command += ["--log-dir", str(folder / "logs"), "--redirects", "3"]
    command += [str(folder / "script.py"), str(STEPS), BACKEND]
    done = _run("torchrun", command)
    logs = sorted((folder / "logs").rglob("stdout.log"))
    _losses["torchrun"] = {
        int(path.parent.name): re.findall(r"loss (\S+)", path.read_text()) for path in logs
    }
    count = sum(map(len, _losses["torchrun"].values()))
    if count != 4 * STEPS:
        errors = [
            path.read_text().strip() for path in sorted((folder / "logs").rglob("stderr.log"))
        ]
        last = next((text.splitlines()[-1] for text in errors if text), done.stderr[-200:])
        raise ValueError(f"{count} losses of {4 * STEPS}: {last}")
    return f"{count} losses"


def _train(folder: Path, *options: str, part: str = "train") -> str:
    command = [*LIGHTRIG, "train", "testbeds/rails4.yaml", "--instruments", "simulated", "--json"]
    command += ["--parallel", "dp=2,sdp=2", *options, "--", str(folder / "script.py")]
    done = _run(part, [*command, str(STEPS), BACKEND])
    if not done.stdout.startswith("{"):
        raise ValueError(_last(done))
    answer = json.loads(done.stdout)
    found: defaultdict[int, list[str]] = defaultdict(list)
    for rank, loss in re.findall(r"^\[on circuits, rank (\d+)\] .*loss (\S+)", done.stderr, re.M):
        found[int(rank)].append(loss)
    _losses[part] = dict(found)
    if part == "train":
        return f"{_beside_torchrun(found)}; {_step(answer)}"
    return f"{_compared(answer)}; {_failures(answer)}"


def _cut(folder: Path) -> str:
    """A cut of 5 s in the fourth step: the script begins anew, over links that are back."""
    return _train(folder, "--max-restarts", "1", "--fault", "cut:5s,step=4", part="cut")


def _beside_torchrun(found: dict[int, list[str]]) -> str:
    plain = _losses.get("torchrun", {})
    pairs = [
        (float(a), float(b))
        for rank, values in plain.items()
        for a, b in zip(values, found.get(rank, ()), strict=False)
    ]
    if len(pairs) != 4 * STEPS:
        return f"{len(pairs)} losses to compare of {4 * STEPS}"
    apart = max(abs(a - b) / max(abs(a), abs(b)) for a, b in pairs)
    same = "equal torchrun's" if not apart else f"within {apart:.1g} of torchrun's"
    return f"{len(pairs)} losses {same}"


def _compared(answer: dict[str, Any]) -> str:
    compared = answer["comparison"]
    return f"{compared['count']} losses, {len(compared['different'])} differ from those on the ring"


def _step(answer: dict[str, Any]) -> str:
    if answer["step"] is None:
        return "no step"
    times = ", ".join(
        f"{name} {share['value'] / 1e6:.1f}" for name, share in answer["shares"].items()
    )
    return f"step {answer['step']['value'] / 1e6:.1f} ms (n = {answer['step']['n']}): {times}"


def _failures(answer: dict[str, Any]) -> str:
    costs = [
        f"{each['cause']}, cost {sum(p[1] for p in each['parts'].values()) / 1e9:.1f} s"
        for each in answer["failures"]
    ]
    return "; ".join(costs) or "no failure was noticed"


def _survive() -> str:
    options = ["--library", BACKEND, "--fault", "cut:1s", "--job", "train"]
    return _outcome("survive", options)


def _command(folder: Path) -> str:
    """The circuit of both ranks leads elsewhere for a second."""
    line = f"{sys.executable} -m benchmarks.gpu {folder / 'rows.py'}"
    return _outcome("command", ["--fault", "plan:1s,to=crossed", "--command", line])


def _outcome(part: str, options: Sequence[str]) -> str:
    command = [*LIGHTRIG, "survive", "testbeds/namespaces.yaml", "--instruments", "simulated"]
    done = _run(part, [*command, "--json", *options])
    if not done.stdout.startswith("{"):
        raise ValueError(_last(done))
    (found,) = json.loads(done.stdout)["faults"]
    return (
        f"{found['outcome']}, stall {found['stall_ns'] / 1e9:.2f} s, {found['exchanges']} "
        f"exchanges, {found['wrong']} wrong {found['error']}".rstrip()
    )


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return f"status {done.returncode}: {' | '.join(lines[-4:])}"


# ------------------------------------------------------------------------- launcher of part 5


def launch(script: str) -> int:
    """Start both ranks in the namespaces of the testbed whose `survive` runs this command."""
    first, second = _holder("192.0.2.2"), _holder("192.0.2.3")
    address = "tcp://192.0.2.2:29500"
    ranks = [
        subprocess.Popen(
            namespaces.enter_command(
                pid, [sys.executable, script, str(rank), device, BACKEND, address]
            ),
            stdout=None if not rank else subprocess.DEVNULL,
        )
        for rank, (pid, device) in enumerate(((first, "fabric1"), (second, "fabric0")))
    ]
    return max(abs(rank.wait()) for rank in ranks)


def _holder(address: str) -> int:
    """Return a process in the network namespace that has an address; raises `LookupError`."""
    relatives = set(_relatives())
    for pid in relatives:
        try:
            table = Path(f"/proc/{pid}/net/fib_trie").read_text()
        except OSError:
            continue
        if re.search(rf"\b{re.escape(address)}\n\s+/32 host LOCAL", table):
            return pid
    raise LookupError(f"no namespace has {address}")


def _relatives() -> Iterator[int]:
    """Yield the processes that an ancestor of this one has started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    above, pid = set(), os.getpid()
    while pid > 1:
        above.add(pid)
        pid = parents.get(pid, 0)
    for each in parents:
        pid = each
        while pid > 1 and pid not in above:
            pid = parents.get(pid, 0)
        if pid in above:
            yield each


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1]))
