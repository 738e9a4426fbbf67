"""Unpack the ELF kernel inside of a bzImage: unpack_kernel.py BZIMAGE VMLINUX.

Runs without Lightrig. Header: Documentation/arch/x86/boot.rst of Linux, payload_offset (0x248) and
payload_length (0x24c), counted from the end of setup_sects (0x1f1).
"""

import lzma
import struct
import subprocess
import sys
from pathlib import Path

_SECTOR = 512
_DEFAULT_SETUP_SECTORS = 4
_XZ, _ELF = b"\xfd7zXZ\0", b"\x7fELF"


def unpacked(image: bytes) -> bytes:
    """Return the ELF file within a bzImage packed by xz or zstd; raises ValueError."""
    setup = ((image[0x1F1] or _DEFAULT_SETUP_SECTORS) + 1) * _SECTOR
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[setup + offset : setup + offset + length]
    if payload.startswith(_XZ):
        kernel = lzma.LZMADecompressor().decompress(payload)
    else:  # the last four bytes are the unpacked size
        command = ["zstd", "--decompress", "--stdout"]
        kernel = subprocess.run(command, input=payload[:-4], capture_output=True, check=True).stdout
    if not kernel.startswith(_ELF):
        raise ValueError("the kernel's payload is no ELF file")
    return kernel


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(unpacked(Path(sys.argv[1]).read_bytes()))
