"""`torch.hub`: models and weights from GitHub, from a folder or by URL, kept in a cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from gt import _absent, _save

try:
    from tqdm.auto import tqdm
except ModuleNotFoundError:

    class tqdm:  # type: ignore[no-redef]  # noqa: N801 (the library's name)
        """A progress bar that shows nothing, where the library `tqdm` is not installed."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def update(self, n: float = 1) -> None:
            """Does nothing, since nothing is shown."""

        def close(self) -> None:
            """Does nothing, since nothing is shown."""

        def __enter__(self) -> tqdm:
            return self

        def __exit__(self, *_error: object) -> None:
            pass


__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

__getattr__ = _absent.getter(__name__)

# The first characters of a file's SHA-256 in its name: resnet18-f37072fd.pth.
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHUNK_BYTES = 1 << 20

_folder: str | None = None
_list = list


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return str(Path(os.environ.get("TORCH_HOME", Path(cache) / "torch")).expanduser())


def get_dir() -> str:
    """The folder of the cache: what `set_dir` set, else `hub` in `TORCH_HOME`, `~/.cache/torch` by default."""
    return str(Path(_get_torch_home()) / "hub") if _folder is None else _folder


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the folder of the cache."""
    global _folder
    _folder = str(Path(d).expanduser())


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Downloads a file. `dst` is written when the whole file is there.

    Args:
        url: Where the file is.
        dst: The path to write.
        hash_prefix: The first characters of the file's SHA-256; not checked if not given.
        progress: Whether to show a progress bar, if the library `tqdm` is installed.

    Raises:
        RuntimeError: The SHA-256 is another.
        urllib.error.URLError: The URL cannot be read.
    """
    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    with (
        urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "torch.hub"})) as source,
        tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file,
        tqdm(
            total=int(source.headers.get("Content-Length", 0)), disable=not progress, unit="B", unit_scale=True
        ) as bar,
    ):
        try:
            while chunk := source.read(_CHUNK_BYTES):
                file.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value of {url} (expected "{hash_prefix}", got "{digest.hexdigest()}")'
                )
            file.close()
            Path(file.name).replace(target)
        finally:
            Path(file.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """Loads a checkpoint from a URL; a copy is kept in the cache.

    Args:
        url: Where the checkpoint is.
        model_dir: The folder of the copy; `checkpoints` in the cache's folder if not given.
        map_location: As for `gt.load`.
        progress: As for `download_url_to_file`.
        check_hash: Whether the name has the first characters of the file's SHA-256, to be checked.
        file_name: The name of the copy; the URL's if not given.
        weights_only: As for `gt.load`.
    """
    folder = Path(model_dir or Path(get_dir()) / "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (file_name or Path(urlparse(url).path).name)
    if not file.exists():
        found = HASH_REGEX.search(file.name) if check_hash else None
        download_url_to_file(url, str(file), found.group(1) if found else None, progress)
    return _save.load(file, map_location, weights_only=weights_only)


def _repository(name: str, source: str, force_reload: bool) -> Path:
    """The folder of a repository: the one that `name` is, or a copy of the one on GitHub."""
    if source == "local":
        return Path(name)
    if source != "github":
        raise ValueError(f'hub: source is "github" or "local", but got {source!r}')
    repository, _, reference = name.partition(":")
    if repository.count("/") != 1:
        raise ValueError(f"hub: a repository is owner/name or owner/name:branch, but got {name!r}")
    reference = reference or "main"
    cache = Path(get_dir())
    folder = cache / f"{repository}_{reference}".replace("/", "_")
    if folder.exists() and not force_reload:
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as unpacked:
        archive = Path(unpacked) / "archive.zip"
        download_url_to_file(f"https://github.com/{repository}/zipball/{reference}", str(archive))
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(unpacked)
        archive.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        next(Path(unpacked).iterdir()).rename(folder)
    return folder


def _entries(folder: Path) -> Any:
    """The module `hubconf.py` of a repository."""
    spec = importlib.util.spec_from_file_location("hubconf", folder / "hubconf.py")
    if spec is None or spec.loader is None or not (folder / "hubconf.py").exists():
        raise FileNotFoundError(f"hub: {folder} has no hubconf.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(folder: Path, model: str) -> Any:
    found = getattr(_entries(folder), model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,  # noqa: ARG001 (naming a repository is to trust it)
    force_reload: bool = False,
    verbose: bool = True,  # noqa: ARG001
    skip_validation: bool = False,  # noqa: ARG001
    **kwargs: Any,
) -> Any:
    """Calls the function `model` of a repository's `hubconf.py`, which runs the repository's code.

    Args:
        repo_or_dir: `owner/name` or `owner/name:branch` on GitHub; a folder if `source` is `"local"`.
        model: The function's name.
        *args: Its arguments.
        source: `"github"` or `"local"`.
        trust_repo: Ignored: the repository is trusted.
        force_reload: Whether to download the repository even if the cache has it.
        verbose: Ignored.
        skip_validation: Ignored.
        **kwargs: Its named arguments.

    Returns:
        What the function returns, usually a module.
    """
    return _entry(_repository(repo_or_dir, source, force_reload), model)(*args, **kwargs)


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,  # noqa: ARG001
    trust_repo: Any = None,  # noqa: ARG001
    verbose: bool = True,  # noqa: ARG001
) -> Any:
    """The names of the functions that a repository on GitHub offers."""
    module = _entries(_repository(github, "github", force_reload))
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,  # noqa: ARG001
    trust_repo: Any = None,  # noqa: ARG001
) -> Any:
    """The docstring of a function that a repository on GitHub offers."""
    return _entry(_repository(github, "github", force_reload), model).__doc__
