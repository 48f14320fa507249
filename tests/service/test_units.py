"""The systemd units and the contents of the Debian package. Needs systemd's tools, but no running systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from machine import ROOT, SYSTEMD, TARGET, eventually, packages, run

pytestmark = pytest.mark.timeout(900)
EXPOSURE_MAX = 2.0
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze") or not SYSTEMD.exists(), reason="systemd is not installed"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs everything, and returns the root folder of the installation."""
    folder = tmp_path_factory.mktemp("installed")
    run("make", "install", f"DESTDIR={folder}", "PREFIX=/usr", cwd=ROOT)
    return folder


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_units(installed: Path) -> None:
    units = installed / "usr/lib/systemd/system"
    # The programs are put where the units expect them.
    for unit in units.iterdir():
        unit.write_text(unit.read_text().replace("/usr/bin/gt", f"{installed}/usr/bin/gt"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units.iterdir()], capture_output=True, text=True, check=False
    )
    own = [line for line in done.stderr.splitlines() if "gtd." in line]
    assert (done.returncode, own) == (0, []), done.stderr


@needs_systemd
def test_the_service_is_walled_in() -> None:
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", ROOT / "systemd" / "gtd.service")
    found = re.search(r"Overall exposure level for gtd.service: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found.group(1)) <= EXPOSURE_MAX


def certificate(gtd: Path, folder: Path) -> Path:
    """Returns the file with the certificate and the key that a daemon makes for itself."""
    file = folder / "tls.pem"
    options = ["--workers", "cpu:1", "--socket", folder / "gtd.sock", "--listen", "0", "--state", folder]
    daemon = subprocess.Popen([gtd, *options], env={**os.environ, "GT_TOKEN": "t" * 32}, stderr=subprocess.DEVNULL)
    try:
        eventually("a certificate", lambda: file.exists() and "PRIVATE KEY" in file.read_text())
    finally:
        daemon.kill()
        daemon.wait()
    return file


def test_the_configuration_that_is_installed_is_good_and_so_are_its_comments(installed: Path, tmp_path: Path) -> None:
    gtctl = installed / "usr/bin/gtctl"
    shipped = installed / "etc/gt/gtd.yaml"
    assert "is good" in run(gtctl, "config", "check", shipped)
    # Every commented-out key of the example configuration is valid, with a user and a group that this machine has.
    text = re.sub(r"^( *)#(?=[a-z ]+)", r"\1", shipped.read_text(), flags=re.MULTILINE)
    text = text.replace("ana:", "root:").replace("lab:", "root:")
    own = certificate(installed / "usr/bin/gtd", tmp_path)
    text = text.replace("/etc/gt/box.pem", str(own)).replace("/etc/gt/box.key", str(own))
    keys = re.sub(r"^(?! *[a-z_]+:( \S*)?$).*$", "", text, flags=re.MULTILINE)
    everything = tmp_path / "gtd.yaml"
    everything.write_text(keys)
    assert keys.count(":") > 12
    assert "is good" in run(gtctl, "config", "check", everything)


def test_the_package_holds_what_an_administrator_needs() -> None:
    package = packages()["gtd"]
    listed = run("dpkg-deb", "--contents", package)
    for path in (
        "usr/bin/gtd",
        "usr/bin/gtctl",
        "usr/lib/systemd/system/gtd.service",
        "usr/lib/systemd/system/gtd.socket",
        "usr/lib/sysusers.d/gt.conf",
        "usr/lib/tmpfiles.d/gt.conf",
        "etc/gt/gtd.yaml",
        "usr/share/man/man8/gtd.8",
        "usr/share/man/man1/gtctl.1",
        "usr/share/man/man1/gtctl-limits-set.1",
        "usr/share/man/man5/gtd.yaml.5",
        "usr/share/gtd/alerts.yaml",
        "usr/share/gtd/grafana-dashboard.json",
        "usr/share/bash-completion/completions/gtctl",
        "usr/share/zsh/site-functions/_gtctl",
        "usr/share/fish/vendor_completions.d/gtd.fish",
    ):
        assert re.search(rf" \./{path}$", listed, flags=re.MULTILINE), f"{path}\n{listed}"
    assert not re.search(r"\d (?!root/root)\w+/\w+ ", listed)
    fields = run("dpkg-deb", "--field", package)
    assert re.search(r"^Depends: .*libc6 \(>= ", fields, flags=re.MULTILINE), fields
    assert "/etc/gt/gtd.yaml" in run("dpkg-deb", "--info", package, "conffiles")


def test_the_library_s_packages_are_what_a_program_of_c_needs(tmp_path: Path) -> None:
    # The compiled kernels of NVIDIA's devices are packed where they were compiled.
    compiled = ["gtd-cuda-kernels"] if (TARGET / "lib" / "gt" / "cuda-kernels").exists() else []
    assert sorted(packages()) == ["gtd", *compiled, "libgt-dev", "libgt0"]
    fields = {name: run("dpkg-deb", "--field", package) for name, package in packages().items()}
    version = re.search(r"^Version: (.*)$", fields["libgt0"], flags=re.MULTILINE)[1]
    assert f"Depends: libgt0 (= {version})\n" in fields["libgt-dev"]
    assert re.search(r"^Depends: .*libc6 \(>= ", fields["libgt0"], flags=re.MULTILINE), fields
    assert "libgt 0 libgt0 " in run("dpkg-deb", "--info", packages()["libgt0"], "shlibs")
    # One package suffices to run programs, the other to compile them.
    at_work, to_compile = tmp_path / "libgt0", tmp_path / "both"
    run("dpkg-deb", "--extract", packages()["libgt0"], at_work)
    for name in ("libgt0", "libgt-dev"):
        run("dpkg-deb", "--extract", packages()[name], to_compile)
    (folder,) = {path.parent for path in at_work.glob("usr/lib/*/libgt.so.0")}
    if not shutil.which("pkg-config"):
        pytest.skip("there is no pkg-config")
    search = to_compile / folder.relative_to(at_work) / "pkgconfig"
    env = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(to_compile), "PKG_CONFIG_LIBDIR": str(search)}
    flags = run("pkg-config", "--cflags", "--libs", "gt", env=env).split()
    source = to_compile / "usr/share/doc/libgt-dev/examples/first.c"
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", source, *flags, "-o", tmp_path / "first")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GT_")}
    env |= {"LD_LIBRARY_PATH": str(folder), "GT_DAEMON": str(TARGET / "release" / "gtd")}
    assert abs(float(run(tmp_path / "first", env=env))) < 1e6
