"""Places of results, and files that appear whole.

A place is a folder of this machine, a shared one, or any URL that fsspec reads. Below a folder no
link is followed: an account that can write there could have any file of its reader copied.
"""

import os
import re
import shutil
import stat
import tempfile
import urllib.parse
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lightrig.harness.record.row import QuestionError, RecordError
from lightrig.testbeds.regular_files import (
    LinkError,
    folder_below,
    give_to_group,
    make_folder,
    read_regular,
)

# ------------------------------------------------------------------------------------------- files


@contextmanager
def appearing(path: Path, below: Path | None = None) -> Iterator[Path]:
    """A hidden path to write to, which becomes `path` at the end; an exception removes it.

    Readers and other writers meanwhile see what was there before: nothing, or the file that
    is replaced. The hidden name is this writer's own, also among hosts that share the folder.
    below: a folder above `path`; no link between them is followed. Raises `OSError`.
    """
    with _folder_of(path, below) as folder:
        hidden = folder / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            yield hidden
            _sync(hidden, os.stat(folder).st_mode)
            hidden.replace(folder / path.name)
            _sync(folder)
        finally:
            hidden.unlink(missing_ok=True)


@contextmanager
def _folder_of(path: Path, below: Path | None) -> Iterator[Path]:
    """The folder of `path`, which is made where it is missing."""
    if below is None:
        make_folder(path.parent)
        yield path.parent
        return
    with folder_below(below, path.parent.relative_to(below), make=True) as folder:
        yield folder


def left_by_the_killed(folder: Path, name: str) -> Iterator[Path]:
    """Hidden files in `folder` of writers of `name` that were killed, or that still write."""
    return folder.glob(f".{name}.*.tmp")


def _sync(path: Path, folder: int = 0) -> None:
    """Have a file or folder on the disk, with the rights of the group that shares its folder.

    folder: the mode of that.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        give_to_group(file, folder)
        os.fsync(file)
    finally:
        os.close(file)


# ------------------------------------------------------------------------------------------ places


# Of these a rename is one step; elsewhere, as in an object store, writing a file is.
_RENAMING = frozenset(("ftp", "hdfs", "sftp", "smb", "ssh", "webhdfs"))


_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S = 10, 60


def _object_store() -> Any:
    """Return S3 by Arrow's client, which pyarrow brings.

    Keys, profile and region come from the environment and the files of AWS's own tools, as for
    these; `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` names another server than AWS.
    """
    from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415
    from pyarrow.fs import S3FileSystem  # takes long to load

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    store = S3FileSystem(
        endpoint_override=endpoint or None,
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_REQUEST_TIMEOUT_S,
    )
    return ArrowFSWrapper(store)


class UnreadableFolderWarning(UserWarning):
    """A folder of results is left out, since this account may not read it."""


class Place:
    """A folder by its path or URL, such as `results` or `s3://lab/results`.

    Raises `QuestionError` for a URL that names a password, or whose scheme is unknown or wants
    a package that is not installed. Each method raises `RecordError` for what cannot be read or
    written.
    """

    def __init__(self, location: str | Path) -> None:
        self.name = str(location)
        if urllib.parse.urlsplit(self.name).password:
            raise QuestionError(
                "the location of results names a password, and would be recorded; give it as "
                "the storage's own configuration or environment does"
            )
        import fsspec  # noqa: PLC0415 - takes long to load, and a run that writes needs none

        self._fs: Any
        try:
            if urllib.parse.urlsplit(self.name).scheme == "s3":
                self._fs, self._root = _object_store(), self.name.partition("://")[2]
            else:
                self._fs, self._root = fsspec.core.url_to_fs(self.name)
        except (OSError, ValueError, ImportError) as error:
            raise QuestionError(f"{self.name}: {error}") from error
        known = self._fs.protocol
        self._protocols = frozenset((known,) if isinstance(known, str) else known)

    @property
    def filesystem(self) -> Any:
        """The file system of fsspec."""
        return self._fs

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one of this machine's, mounted or its own."""
        return Path(self._root) if "file" in self._protocols else None

    def path(self, name: str = "") -> str:
        """Return the path of `name`, below this place, on its file system."""
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def files(self, below: str) -> list[str]:
        """All files below the folder `below`, hidden ones apart, named from this place on.

        A link counts as a file, whatever it leads to. A folder that this account may not read is
        an `UnreadableFolderWarning`.
        """
        if self.folder is not None:  # twenty times as fast as by fsspec, which asks of each file
            with self._errors_named():
                return sorted(_walk(self._root, below, self._warn))
        with self._errors_named():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self.path(below))
            except FileNotFoundError:
                return []
        names = (name[len(self.path()) :].lstrip("/") for name in found)
        return sorted(name for name in names if not re.search(r"(^|/)\.", name))

    def sizes(self) -> dict[str, int]:
        """The size in bytes of each file, hidden ones apart, by its name from this place on.

        -1 for what is no regular file of this machine, such as a link or a named pipe.
        """
        if self.folder is not None:
            with self._errors_named():
                return {
                    name: found.st_size if stat.S_ISREG(found.st_mode) else -1
                    for name in sorted(_walk(self._root, "", self._raise))
                    if (found := os.lstat(self.path(name)))
                }
        with self._errors_named():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self.path(), detail=True)
            except FileNotFoundError:
                return {}
        names = {name[len(self.path()) :].lstrip("/"): each for name, each in found.items()}
        return {name: int(names[name]["size"]) for name in sorted(names) if "/." not in f"/{name}"}

    def write(self, name: str, data: bytes) -> None:
        """Write a file; it appears whole or not at all."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.put(Path(file.name), name)

    def read(self, names: Iterable[str]) -> Mapping[str, bytes]:
        """The content of each of these files."""
        paths = {self.path(name): name for name in names}
        if not paths:
            return {}
        with self._errors_named():
            if self.folder is not None:
                root = self._root
                return {name: read_regular(name, None, root) for name in paths.values()}
            return {paths[path]: data for path, data in self._fs.cat(list(paths)).items()}

    def read_each(
        self,
        below: str,
        name: str,
        folders: Collection[str] | None = None,
        unread: dict[str, str] | None = None,
    ) -> Mapping[str, bytes]:
        """The content of the file `name` of each folder in `below` that has one, sorted by name.

        folders: names of those to look into, instead of all. What this account may not read is
        left out, and its problem noted in `unread` by its name: one member of a group that shares
        a folder must not make the runs of all unreadable.
        """
        if self.folder is None:
            every = re.compile(rf"{re.escape(below)}/[^/]+/{re.escape(name)}")
            among = None if folders is None else {f"{below}/{one}/{name}" for one in folders}
            return self.read(
                file
                for file in self.files(below)
                if (every.fullmatch(file) if among is None else file in among)
            )
        found = {}
        with self._errors_named():
            for folder in self.folders(below) if folders is None else sorted(folders):
                file = f"{below}/{folder}/{name}"
                try:
                    found[file] = read_regular(file, below=self._root)
                except FileNotFoundError:
                    pass
                except PermissionError as error:
                    if unread is not None:
                        unread[file] = f"{error.filename}: {error.strerror}"
        return found

    def folders(self, below: str) -> list[str]:
        """Names of the folders in the folder `below` of this machine, hidden ones apart."""
        with self._errors_named():
            try:
                with os.scandir(self.path(below)) as entries:
                    return sorted(
                        each.name
                        for each in entries
                        if each.name[0] != "." and each.is_dir(follow_symlinks=False)
                    )
            except FileNotFoundError:
                return []

    def read_if_there(self, name: str) -> bytes | None:
        """The content of a file, or None where there is none."""
        with self._errors_named():
            try:
                if self.folder is not None:
                    return read_regular(name, below=self._root)
                return bytes(self._fs.cat_file(self.path(name)))
            except FileNotFoundError:
                return None

    def put(self, file: Path, name: str) -> None:
        """Copy a file of this machine; it appears whole or not at all."""
        target = self.path(name)
        with self._errors_named():
            if self.folder is not None:
                with appearing(Path(target), self.folder) as hidden:
                    hidden.write_bytes(file.read_bytes())
                return
            folder, _, last = target.rpartition("/")
            self._fs.makedirs(folder, exist_ok=True)
            if _RENAMING.isdisjoint(self._protocols):
                self._fs.put_file(str(file), target)
                return
            draft = f"{folder}/.{last}.{uuid.uuid4().hex}.tmp"
            self._fs.put_file(str(file), draft)
            self._fs.mv(draft, target)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        with self._errors_named():
            if self.folder is not None:
                with folder_below(self.folder, os.path.dirname(name)) as folder:
                    return os.lstat(folder / os.path.basename(name)).st_size
            return int(self._fs.size(self.path(name)))

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is removed already."""
        with self._errors_named(), suppress(FileNotFoundError):
            if self.folder is None:
                self._fs.rm_file(self.path(name))
                return
            with folder_below(self.folder, os.path.dirname(name)) as folder:
                (folder / os.path.basename(name)).unlink()

    def remove_drafts(self, below: str, name: str) -> None:
        """Remove what killed writers of the file `name` left in the folder `below`, if it is one.

        Of this machine alone: elsewhere no file is there in part.
        """
        if self.folder is None:
            return
        absent = suppress(FileNotFoundError)
        with self._errors_named(), absent, folder_below(self.folder, below) as folder:
            for left in left_by_the_killed(folder, name):
                left.unlink(missing_ok=True)

    def remove_empty(self, below: str) -> None:
        """Remove the folder `below` with all folders in it, where folders exist and none has files.

        Hidden files, which writers leave that were killed, go with it.
        """
        if self.folder is None or self.files(below):
            return
        with suppress(OSError), folder_below(self.folder, os.path.dirname(below)) as folder:
            shutil.rmtree(folder / os.path.basename(below), ignore_errors=True)

    def _warn(self, error: OSError) -> None:
        """Name a folder that this account may not read; one that was removed meanwhile is none."""
        if not isinstance(error, FileNotFoundError):
            warnings.warn(
                f"{error.filename} is left out: {error.strerror}; try `chmod -R g+rX` as its owner",
                UnreadableFolderWarning,
                stacklevel=3,
            )

    def _raise(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.name}: {error}") from error


def _walk(root: str, below: str, unread: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the files below a folder of this machine, hidden ones apart, named from `root` on.

    Links are yielded, and not followed. Raises `LinkError` where `below` leads through one.
    unread: is called with the error of each folder that cannot be listed.
    """
    top = root.rstrip("/")
    for part in filter(None, below.split("/")):
        top = f"{top}/{part}"
        if os.path.islink(top):
            raise LinkError(0, "is a link, and none is followed here", top)
    for parent, folders, names in os.walk(
        f"{root.rstrip('/')}/{below}".rstrip("/"), onerror=unread
    ):
        folders[:] = [name for name in folders if name[0] != "."]
        names += [name for name in folders if os.path.islink(f"{parent}/{name}")]
        within = parent[len(root.rstrip("/")) + 1 :]
        yield from (f"{within}/{name}".lstrip("/") for name in names if name[0] != ".")
