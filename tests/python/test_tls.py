"""TLS of sessions by TCP: the same results, known daemons alone, and clear errors for everything else."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket as sockets
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import TOKEN, Server, environment, greeting, gtd, output_of, server, started
from test_tcp import PROLOGUE, lines_of

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


def gtctl(*words: object, status: int = 0, **env: str) -> str:
    """Runs `gtctl`, and returns what it prints."""
    command = [gtd().with_name("gtctl"), *words]
    done = subprocess.run(
        list(map(str, command)), env=environment(**env), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def fingerprint(daemon: Server) -> str:
    """Returns the fingerprint of a daemon's certificate, as `gtctl status` tells it."""
    return json.loads(gtctl("status", "--json", "--socket", daemon.socket))["tcp"]["fingerprint"]


def error_of(address: str, **env: str | None) -> str:
    """Returns the error with which a program does not connect."""
    (line,) = lines_of("print(told(gt.connect))", GT_CONNECT=address, GT_TOKEN=TOKEN, **env)
    return line


@contextmanager
def listener() -> Iterator[sockets.socket]:
    with sockets.create_server(("127.0.0.1", 0)) as listening:
        yield listening


# The daemon's own certificate -------------------------------------------------------------------------------------


def test_a_program_computes_with_tls(tmp_path: Path) -> None:
    program = """
a = np.arange(5_000_000, dtype=np.float32)
x = gt.from_numpy(a)
print(np.array_equal((x * 2).numpy(), a * 2))
y = gt.zeros(3)
for i in range(20_000): y = y + 1
print(y.tolist(), gt._gt.session_info()["address"])
def work(i):
    b = np.full(200_000, i, np.float32)
    return all(np.array_equal((gt.from_numpy(b) * k).numpy(), b * k) for k in range(10))
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool: print(all(pool.map(work, range(4))))
"""
    with server(tmp_path, "--state", str(tmp_path)) as daemon:
        address = f"tls://localhost:{daemon.port}#{fingerprint(daemon)}"
        assert lines_of(program, GT_CONNECT=address, GT_TOKEN=TOKEN) == [
            "True",
            f"[20000.0, 20000.0, 20000.0] {address}",
            "True",
        ]
        daemon.wait_for_no_sessions()


def test_the_certificate_stays_the_same(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with server(tmp_path, "--state", str(tmp_path)) as daemon:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            # Another implementation of TLS agrees, and the daemon answers it.
            with (
                sockets.create_connection(("127.0.0.1", daemon.port), timeout=30) as tcp,
                context.wrap_socket(tcp) as connection,
            ):
                assert connection.version() == "TLSv1.3"
                shown = hashlib.sha256(connection.getpeercert(binary_form=True)).hexdigest()
                connection.sendall(greeting())
                assert connection.recv(8) == b"GT-TCP\r\n"
            assert fingerprint(daemon) == f"sha256:{shown}"
            found.append(shown)
    assert found[0] == found[1]
    assert (tmp_path / "tls.pem").stat().st_mode & 0o777 == 0o600


def test_another_certificate_is_refused(tmp_path: Path) -> None:
    with server(tmp_path, "--state", str(tmp_path)) as daemon:
        at, own = f"localhost:{daemon.port}", fingerprint(daemon)
        bystander = PROLOGUE + "print(gt.ones(1).item(), flush=True)\nsys.stdin.readline()"
        with started(bystander, GT_CONNECT=at, GT_TOKEN=TOKEN) as other:
            assert other.stdout.readline() == "1.0\n"
            told = error_of(f"tls://{at}#sha256:{'0' * 64}")
            known = f"DisconnectedError: the daemon at {at} has another certificate than the address says, {own}: if"
            assert told.startswith(known)
            # Nobody vouches for a certificate that the daemon made itself.
            told = error_of(f"tls://{at}")
            assert told.startswith(f"DisconnectedError: the certificate of the daemon at {at} ({own}) is not accepted")
            assert f"write it after the address: tls://{at}#sha256:" in told
            assert [session["pid"] for session in daemon.sessions()] == [other.pid]
        daemon.process.terminate()
        # The log has one line a minute about connections that failed.
        assert daemon.process.stderr.read().count("TLS with 127.0.0.1:") == 1


def test_an_address_with_a_wrong_fingerprint_is_none() -> None:
    for address in ("tls://localhost:1#sha256:00", "tls://localhost:1#abc", "tls://localhost", "tls://:1"):
        assert "is no address of a daemon" in error_of(address), address


# Clients and services that speak something else -------------------------------------------------------------------


def test_a_service_without_tls_is_said_to_have_none() -> None:
    """As an older daemon, which closes the connection, or another service, which answers something."""
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with listener() as listening:

            def serve(listening: sockets.socket = listening, answer: bytes = answer) -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            at = f"localhost:{listening.getsockname()[1]}"
            told = error_of(f"tls://{at}#sha256:{'0' * 64}")
            thread.join()
            assert told.startswith(f"DisconnectedError: what listens at {at} does not speak TLS: it is an older"), told


def test_handshakes_that_do_not_go_on_are_ended(tmp_path: Path) -> None:
    """Silent, slow and invalid clients of TLS are sent away, and others connect meanwhile."""
    with server(tmp_path, "--state", str(tmp_path)) as daemon:
        hello = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        begun = context.wrap_bio(ssl.MemoryBIO(), hello)
        with pytest.raises(ssl.SSLWantReadError):
            begun.do_handshake()
        first = hello.read()
        openings = [b"\x16", first[:50], first, b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\x16" * 70_000]
        connections = [sockets.create_connection(("127.0.0.1", daemon.port), timeout=60) for _ in openings]
        for connection, opening in zip(connections, openings, strict=True):
            connection.sendall(opening)
        address = f"tls://localhost:{daemon.port}#{fingerprint(daemon)}"
        assert lines_of("print(gt.ones(2).tolist())", GT_CONNECT=address, GT_TOKEN=TOKEN) == ["[1.0, 1.0]"]
        for connection in connections:
            with connection:
                try:
                    while connection.recv(1 << 16):
                        pass
                except ConnectionResetError:
                    pass


# Certificates of an authority -------------------------------------------------------------------------------------


class Authority:
    """A certificate authority."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=lab"),
            *("-keyout", self._key, "-out", self.certificate, "-days", 30),
        )

    def _run(self, *words: object) -> None:
        subprocess.run([OPENSSL, *map(str, words)], check=True, capture_output=True, timeout=60)

    def signed(self, name: str, days: int = 30) -> tuple[Path, Path]:
        """Signs a certificate for localhost; returns the paths of it and of its key."""
        certificate, key, request = (self._folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self._folder / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost\n")
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=box"),
            *("-keyout", key, "-out", request),
        )
        self._run(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", extensions, "-days", days, "-out", certificate),
        )
        return certificate, key

    def expired(self, name: str) -> tuple[Path, Path]:
        """Signs a certificate that has expired."""
        paths = self.signed(name, days=0)
        # It is valid until the second in which it was signed has ended.
        time.sleep(1.001 - time.time() % 1)
        return paths


@needs_openssl
def test_a_certificate_of_an_authority_needs_no_fingerprint(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.signed("box")
    with server(tmp_path, "--tls-certificate", str(certificate), "--tls-key", str(key)) as daemon:
        trusted = {"SSL_CERT_FILE": str(authority.certificate)}
        address = f"tls://localhost:{daemon.port}"
        program = "print(gt.ones(2).tolist())"
        assert lines_of(program, GT_CONNECT=address, GT_TOKEN=TOKEN, **trusted) == ["[1.0, 1.0]"]
        assert lines_of(program, GT_CONNECT=f"{address}#{fingerprint(daemon)}", GT_TOKEN=TOKEN) == ["[1.0, 1.0]"]
        assert "is not accepted" in error_of(f"tls://127.0.0.1:{daemon.port}", **trusted), "it is for another name"
        assert "No such file" in error_of(address, SSL_CERT_FILE=str(tmp_path / "nowhere"))


@needs_openssl
def test_a_certificate_that_has_expired_is_said_to_have(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.expired("old")
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with server(tmp_path, *options) as daemon:
        address = f"tls://localhost:{daemon.port}"
        assert "expired" in error_of(address, SSL_CERT_FILE=str(authority.certificate))
        # A client that names the fingerprint knows the daemon by its key.
        known = f"{address}#{fingerprint(daemon)}"
        assert lines_of("print(gt.ones(1).item())", GT_CONNECT=known, GT_TOKEN=TOKEN) == ["1.0"]
        daemon.process.terminate()
        assert "the certificate for TLS has expired" in daemon.process.stderr.read()


@needs_openssl
def test_a_renewed_certificate_is_shown_after_a_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.expired("old")
    renewed, renewed_key = authority.signed("renewed")
    file = tmp_path / "gtd.yaml"
    file.write_text(f"tls_certificate: {certificate}\ntls_key: {key}\n")
    with server(tmp_path, "--config", str(file)) as daemon:
        trusted = {"SSL_CERT_FILE": str(authority.certificate)}
        address = f"tls://localhost:{daemon.port}"
        before = fingerprint(daemon)
        session = "print(gt.ones(1).item(), flush=True)\nsys.stdin.readline()\nprint(gt.ones(2).sum().item())"
        with started(PROLOGUE + session, GT_CONNECT=f"{address}#{before}", GT_TOKEN=TOKEN) as earlier:
            assert earlier.stdout.readline() == "1.0\n"
            # A certificate with the key of another one is refused, and the old one stays.
            shutil.copy(renewed, certificate)
            told = gtctl("reload", "--socket", daemon.socket, status=7)
            assert "is not that of the certificate" in told
            assert "the old configuration stays in force" in told
            assert fingerprint(daemon) == before
            shutil.copy(renewed_key, key)
            assert "tls_certificate" in gtctl("reload", "--socket", daemon.socket)
            assert fingerprint(daemon) != before
            assert lines_of("print(gt.ones(1).item())", GT_CONNECT=address, GT_TOKEN=TOKEN, **trusted) == ["1.0"]
            assert "has another certificate" in error_of(f"{address}#{before}")
            assert earlier.communicate("\n", timeout=60)[0] == "2.0\n"
            assert "changed: nothing" in gtctl("reload", "--socket", daemon.socket)


@needs_openssl
def test_a_configuration_with_a_bad_certificate_is_found(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (good, key), (old, old_key) = authority.signed("box"), authority.expired("old")
    readable = tmp_path / "readable.key"
    readable.write_bytes(key.read_bytes())
    readable.chmod(0o644)
    file = tmp_path / "gtd.yaml"
    nowhere = tmp_path / "nowhere"
    for certificate, of, why in (
        (good, key, None),
        (nowhere, key, f"the certificate {nowhere}: No such file"),
        (good, nowhere, f"the key {nowhere}: No such file"),
        (good, old_key, "is not that of the certificate"),
        (good, readable, "may be read or changed by others (mode 644)"),
        (key, key, "holds no certificate"),
        (old, old_key, "the certificate for TLS has expired"),
        (good, None, "tls_certificate is set, and tls_key is not"),
    ):
        text = f"listen: 0\ntls_certificate: {certificate}\n" + (f"tls_key: {of}\n" if of else "")
        file.write_text(text)
        told = gtctl("config", "check", file, status=7 if why else 0)
        assert (why or "is good") in told, told
        if why and certificate != old:
            done = subprocess.run(
                [gtd(), "--config", file, "--socket", tmp_path / "gtd.sock"],
                env=environment(GT_TOKEN=TOKEN),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode != 0
            assert why in done.stderr
    # A certificate that ends soon is usable.
    certificate, key = authority.signed("soon", days=3)
    file.write_text(f"tls_certificate: {certificate}\ntls_key: {key}\n")
    assert "the certificate for TLS expires in" in gtctl("config", "check", file)


# The words for connections without TLS -----------------------------------------------------------------------------


def test_what_is_not_encrypted_is_said(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    for options, status, doctor in (
        (["--listen", "0"], "for this machine alone; TLS certificate sha256:", "no network is used"),
        (["--listen", "0.0.0.0:0"], "; other machines connect to tls://", "with TLS; certificate sha256:"),
        (
            ["--listen", "0.0.0.0:0", "--listen-plain", "on"],
            " or tcp://",
            "takes other machines without TLS: tokens and tensors can be read on the way",
        ),
    ):
        command = [gtd(), "--socket", socket, "--state", tmp_path, "--announce", *options]
        process = subprocess.Popen(command, env=environment(GT_TOKEN=TOKEN), stdout=subprocess.PIPE, text=True)
        try:
            while "the token" not in process.stdout.readline():
                pass
            assert status in gtctl("status", "--socket", socket)
            findings = json.loads(
                subprocess.run(
                    [gtd().with_name("gtctl"), "doctor", "--json", "--socket", socket],
                    env=environment(),
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                ).stdout
            )
            (found,) = [finding["found"] for finding in findings if finding["what"] == "tcp"]
            assert doctor in found
        finally:
            process.kill()
            process.communicate()


def test_a_daemon_without_a_folder_for_a_certificate(tmp_path: Path) -> None:
    """It does not listen for other machines; on loopback it needs no certificate."""
    env = environment(GT_TOKEN=TOKEN, XDG_CONFIG_HOME="/proc/nowhere")
    done = subprocess.run(
        [gtd(), "--socket", tmp_path / "gtd.sock", "--listen", "0.0.0.0:0"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "other machines connect with TLS, which needs it" in done.stderr
    with server(tmp_path, XDG_CONFIG_HOME="/proc/nowhere") as daemon:
        assert "for this machine alone; no TLS" in gtctl("status", "--socket", daemon.socket)
        assert output_of("import gt; print(gt.ones(1).item())", GT_CONNECT=daemon.address, GT_TOKEN=TOKEN) == "1.0\n"
        assert "does not speak TLS" in error_of(f"tls://localhost:{daemon.port}#sha256:{'0' * 64}")
