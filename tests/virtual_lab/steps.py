"""Steps of building and booting the virtual lab: each says how long it took."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEFAULT_FOLDER = ROOT / "build" / "virtual-lab"

PACKAGES = {
    "debootstrap": "debootstrap",
    "mke2fs": "e2fsprogs",
    "qemu-system-x86_64": "qemu-system-x86",
    "tcpdump": "tcpdump",
    "ssh": "openssh-client",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""Programs that the lab needs, and their packages in Debian."""


class VirtualLabError(Exception):
    """A step of building, booting or using the lab failed; the text names it."""


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Print how long the step took; name it in what goes wrong."""
    began = time.monotonic()
    print(f"{name} ...", flush=True)
    try:
        yield
    except (VirtualLabError, OSError) as error:
        raise VirtualLabError(f"{name}, after {time.monotonic() - began:.0f} s: {error}") from error
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def obstacle() -> str | None:
    """Return why the lab cannot be built or booted here, with the packages that it lacks."""
    missing = sorted({package for tool, package in PACKAGES.items() if not shutil.which(tool)})
    if missing:
        return f"the virtual lab needs packages: apt install {' '.join(missing)}"
    if not Path("/dev/net/tun").exists():
        return "the virtual lab needs /dev/net/tun"
    return None


def run_script(script: str, arguments: Sequence[str], log: Path) -> None:
    """Run a script of this folder; its output goes to `log`. Raises `VirtualLabError`.

    What it has started ends with it, also where this program is interrupted meanwhile. As root,
    what it has mounted does, too: nothing is left below a root that will be removed.
    """
    own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else []
    argv = [*own_mounts, str(HERE / script), *arguments]
    with log.open("w") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-3:])
        raise VirtualLabError(f"{script} ended with status {status}, see {log}: {last}")


def built(folder: Path) -> Path:
    """Return the folder of kernel, initrd and disk, made where the scripts have changed since."""
    folder.mkdir(parents=True, exist_ok=True)
    root, image = folder / "root", folder / "image"
    root_key = _digest("build_root.sh")
    image_key = root_key + _digest("build_image.sh", "unpack_kernel.py")
    if _is_current(folder / "image.made", image_key):
        print(f"image: as before, {image}")
        return image
    if _is_current(folder / "root.made", root_key):
        print(f"root: as before, {root}")
    else:
        with step("root"):
            shutil.rmtree(root, ignore_errors=True)
            run_script("build_root.sh", [str(root)], folder / "root.log")
            (folder / "root.made").write_text(root_key)
    with step("image"):
        run_script("build_image.sh", [str(root), str(image)], folder / "image.log")
        (folder / "image.made").write_text(image_key)
    return image


def is_built(folder: Path) -> bool:
    """Whether the image exists and is that of today's scripts."""
    key = _digest("build_root.sh") + _digest("build_image.sh", "unpack_kernel.py")
    return _is_current(folder / "image.made", key)


def _digest(*scripts: str) -> str:
    text = b"".join((HERE / script).read_bytes() for script in scripts)
    return hashlib.sha256(text).hexdigest()


def _is_current(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key
