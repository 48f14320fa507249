"""Metrics by HTTP: they agree with the other instruments, Prometheus reads them, and bad clients change nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket as sockets
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from support import ROOT, daemon, environment, eventually, gtd, line_of, started

MONITORING = ROOT / "monitoring"
GTCTL = gtd().with_name("gtctl")
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
WORKLOAD = """
import json, sys, gt
gt.session(name="a-known-name")
a = gt.ones(64, 64)
for i in range(100): a = (a @ a) * 1e-2 + 1
print(a.sum().item() > 0, flush=True)
sys.stdin.readline()
print(json.dumps(gt.debug.get_worker_stats()), flush=True)
sys.stdin.readline()
"""


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float


class Site(NamedTuple):
    """A daemon that serves metrics."""

    socket: Path
    port: int
    process: subprocess.Popen[str]

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, dict[str, str], str]:
        """Returns status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def samples(self) -> dict[str, list[Sample]]:
        """The samples of all metrics, by name."""
        status, headers, body = self.get(**OPENMETRICS)
        assert status == 200, body
        assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert body.endswith("# EOF\n")
        return parsed(body)

    def renew(self) -> None:
        """Waits for a snapshot that is later than this call; the site answers from one for a quarter of a second."""
        kept = self.samples()["gt_start_time_seconds"]
        eventually(lambda: self.samples()["gt_start_time_seconds"] != kept, "the next snapshot")

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        found = self.samples()[name]
        return sum(sample.value for sample in found if labels.items() <= sample.labels.items())


def parsed(text: str) -> dict[str, list[Sample]]:
    samples = defaultdict(list)
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            samples[name].append(Sample(dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), float(value)))
    return samples


def gtctl(socket: Path, *words: str) -> Any:
    done = subprocess.run(
        [GTCTL, "--socket", str(socket), *words, "--json"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[Site]:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--metrics", "0", *options) as process:
        address = gtctl(socket, "status")["metrics"]
        yield Site(socket, int(address.removeprefix("127.0.0.1:")), process)


def by_operation(rows: Any) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """Rows with a name, an operation, and count, time, bytes and errors, as a dict."""
    return {(row["worker"], row["operation"]): tuple(row[key] for key in FIELDS) for row in rows}


def without_syncs(done: dict[tuple[str, str], tuple[int, ...]]) -> dict[tuple[str, str], tuple[int, ...]]:
    return {key: row for key, row in done.items() if key[1] != "sync"}


FIELDS = ("count", "time_ns", "bytes", "errors")
TOTALS = {
    "count": "gt_operations_total",
    "time_ns": "gt_operation_seconds_total",
    "bytes": "gt_operation_bytes_total",
    "errors": "gt_operation_errors_total",
}


def test_totals_agree_with_the_other_instruments(tmp_path: Path) -> None:
    log = tmp_path / "ops.log"
    with (
        serving(tmp_path, "--workers", "cpu:2", "--shard-bytes-min", "0", "--instruction-log", str(log)) as site,
        started(WORKLOAD, GT_SOCKET=str(site.socket)) as client,
    ):
        assert line_of(client) == "True"
        client.stdin.write("\n")
        client.stdin.flush()
        # By the program itself, which asks nothing of a worker for this.
        stats = json.loads(line_of(client))
        own = {
            (worker, operation): tuple(done[field] for field in FIELDS)
            for worker, of in stats.items()
            for operation, done in of["operations"].items()
        }
        assert own["cpu:0", "matmul"][0] + own.get(("cpu:1", "matmul"), (0,))[0] >= 100
        # By the metrics.
        site.renew()
        samples = site.samples()
        metrics: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 4)
        for column, field in enumerate(FIELDS):
            for labels, value in samples[TOTALS[field]]:
                scaled = round(value * 1e9) if field == "time_ns" else int(value)
                metrics[labels["worker"], labels["operation"]][column] = scaled
        everything = {key: tuple(done) for key, done in metrics.items()}
        # The program waits for the workers, with a sync, before and after it counts.
        assert without_syncs(everything) == without_syncs(own)
        for metric, field in (("gt_collectives_total", "count"), ("gt_collective_bytes_total", "bytes")):
            sent = {(labels["worker"], labels["collective"]): value for labels, value in samples[metric]}
            assert sent == {(w, name): c[field] for w, of in stats.items() for name, c in of["collectives"].items()}
            assert sent
        # By `gtctl top`, which reads the tape.
        assert by_operation(gtctl(site.socket, "top", "-d", "0.1")["operations"]) == everything
        # By the instruction log, which the daemon's thread writes from the tape.
        counts: dict[str, int] = defaultdict(int)
        for line in log.read_text().splitlines():
            if "| WORKER_RECV " in line or "| WORKER_RUN " in line:
                counts[re.search(r"op=(\w+)", line)[1]] += 1
        for operation, count in counts.items():
            assert count == sum(done[0] for (_, of), done in everything.items() if of == operation)
        # Steps are in the histogram of their kind, unless they were fused with the one before.
        (matmuls,) = (s.value for s in samples["gt_step_duration_seconds_count"] if s.labels == {"kind": "matmul"})
        assert matmuls == sum(done[0] for (_, operation), done in own.items() if operation == "matmul")
        (fetches,) = (s.value for s in samples["gt_wait_duration_seconds_count"] if s.labels == {"request": "fetch"})
        assert fetches == counts["fetch"] == 1
        # The work of a session is in the totals after its end, too.
        before = site.samples()["gt_user_instructions_total"]
        client.stdin.write("\n")
        client.stdin.flush()
        eventually(lambda: site.value("gt_sessions") == 0, "the end of the session")
        after = site.samples()
        assert after["gt_user_instructions_total"][0].value >= before[0].value >= 100
        assert after["gt_operations_total"] == samples["gt_operations_total"]
        assert after["gt_sessions_begun_total"] == [Sample({}, 1)]


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as process:
        assert gtctl(socket, "status")["metrics"] is None
        names = {thread.joinpath("comm").read_text() for thread in Path(f"/proc/{process.pid}/task").iterdir()}
        assert "gt-web\n" not in names


def refused(*words: str) -> str:
    """The error of a daemon that does not start."""
    done = subprocess.run([gtd(), *words], env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_wrong_address_is_one_clear_sentence(tmp_path: Path) -> None:
    at = ("--socket", str(tmp_path / "gtd.sock"), "--metrics")
    assert "`here` is no address to listen at: write 12345, or 127.0.0.1:12345" in refused(*at, "here")
    said = refused(*at, "0.0.0.0:9400")
    assert "other machines could reach 0.0.0.0:9400, and metrics travel without TLS and without a token" in said
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(*at, address)
    assert said == f"gtd: cannot serve metrics at {address}: another program listens there; choose another port\n"
    config = tmp_path / "gtd.yaml"
    config.write_text("log: warn\nmetrics: 10.0.0.1:9400\n")
    done = subprocess.run(
        [GTCTL, "config", "check", config], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert f"{config}:2: metrics: other machines could reach 10.0.0.1:9400" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not bind port 80")
def test_a_privileged_port_is_named() -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80:
        pytest.skip("every user may bind port 80 here")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        # Other users may not be able to read the program where it is.
        os.chmod(folder, 0o755)
        program = shutil.copy(gtd(), folder)
        done = subprocess.run(
            [program, "--socket", f"@gt-test-{os.getpid()}", "--metrics", "80"],
            env=environment(),
            user=61001,
            group=61001,
            extra_groups=(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "cannot serve metrics at 127.0.0.1:80: ports below 1024 are for root; choose another port" in done.stderr


# Bad clients -----------------------------------------------------------------------------------------------------


def said_to(port: int, request: bytes, *, ends: bool = False) -> bytes:
    """The first part of the answer to bytes, or nothing. A client that `ends` says that it sends no more."""
    with sockets.create_connection(("127.0.0.1", port), timeout=60) as tcp:
        tcp.sendall(request)
        if ends:
            tcp.shutdown(sockets.SHUT_WR)
        try:
            return tcp.recv(1 << 16)
        except ConnectionResetError:
            return b""


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        host = b"Host: localhost\r\n"
        for request, status in [
            (b"POST /metrics HTTP/1.1\r\n" + host + b"Content-Length: 0\r\n\r\n", b"405 Method Not Allowed"),
            (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421 Misdirected Request"),
            (b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n", b"404 Not Found"),
            (b"GET /metrics HTTP/1.1\r\n" + host + b"X: " + b"x" * (64 << 10) + b"\r\n\r\n", b"431 "),
            (b"GET /metrics HTTP/1.1\r\n" + host + b"".join(b"X%d: y\r\n" % i for i in range(100)) + b"\r\n", b"431 "),
            (b"GET /" + b"x" * (64 << 10) + b" HTTP/1.1\r\n" + host + b"\r\n", b"431 "),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), b"400 Bad Request"),
            (b"GT-TCP\r\n\x00\x00\r\n\r\n", b"400 Bad Request"),
        ]:
            answer = said_to(site.port, request)
            assert answer.startswith(b"HTTP/1.1 " + status), (request[:40], answer[:200])
        for request in (b"", b"\r\n", b"GET", b"GET /metrics HTTP/1.1\r\nHost"):
            assert not said_to(site.port, request, ends=True).startswith(b"HTTP/1.1 200"), request
        assert site.get()[0] == 200
        assert site.process.poll() is None


def test_silent_clients_keep_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        silent = []
        try:
            for _ in range(200):
                tcp = sockets.create_connection(("127.0.0.1", site.port), timeout=60)
                tcp.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX")
                silent.append(tcp)
            assert site.get()[0] == 200
            # The first ones were closed for the last ones.
            with contextlib.suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""
            own = f"/proc/{site.process.pid}/fd"
            assert len(os.listdir(own)) < 150
        finally:
            for tcp in silent:
                tcp.close()


def test_many_scrapes_are_one_question_to_the_dispatcher(tmp_path: Path) -> None:
    with serving(tmp_path) as site:
        (first,) = site.samples()["gt_start_time_seconds"]
        bodies = {site.get(**OPENMETRICS)[2] for _ in range(200)}
        # Each snapshot has a start and a duration of its own, and two hundred scrapes take less than some seconds.
        assert len(bodies) < 100, len(bodies)
        assert abs(site.samples()["gt_start_time_seconds"][0].value - first.value) < 1


# Prometheus ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there: apt install prometheus")
def test_promtool_finds_no_fault(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--workers", "cpu:2", "--shard-bytes-min", "0") as site,
        started(WORKLOAD, GT_SOCKET=str(site.socket)) as client,
    ):
        assert line_of(client) == "True"
        site.renew()
        assert site.value("gt_sessions") == 1
        _, headers, body = site.get()
        assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=body, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        # Both formats have the same samples.
        of_sessions = {name for name in parsed(body) if name.startswith(("gt_snapshot", "gt_start", "gt_wait"))}
        other = site.samples()
        assert parsed(body).keys() == other.keys()
        assert all(parsed(body)[name] == other[name] for name in other.keys() - of_sessions if "share" not in name)


PROGRAM = """
import gt
a = gt.ones(64, 64)
while True:
    for i in range(20): a = (a @ a) * 1e-2 + 1
    a.sum().item()
    print(flush=True)
"""
# The panels and alerts that a healthy daemon with one worker leaves empty.
QUIET = ("gt_collective", "> 0")


class Prometheus(NamedTuple):
    """A running Prometheus."""

    port: int

    def asks(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        assert document["status"] == "success", document
        return document["data"]

    def value(self, expression: str) -> list[float]:
        return [float(sample["value"][1]) for sample in self.asks("query", query=expression)["result"]]


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Prometheus]:
    """Runs Prometheus, which scrapes a port of this machine several times a second, with our alert rules."""
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
        "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "gtd", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with sockets.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=30):
                return True
            return False

        eventually(is_ready, "Prometheus")
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait()


def test_the_monitoring_files_name_metrics_that_there_are(tmp_path: Path) -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 15
    used = set(re.findall(r"\bgt_\w+", (MONITORING / "alerts.yaml").read_text() + "".join(expressions)))
    documented = set(re.findall(r"`(gt_\w+)`", (ROOT / "docs/administration.md").read_text()))
    with serving(tmp_path) as site:
        _, _, body = site.get()
    known = {
        name + suffix
        for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", body, re.MULTILINE)
        for suffix in (("", "_bucket", "_count") if kind == "histogram" else ("",))
    }
    assert used <= known
    assert documented <= known
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_dashboard_is_one_by_grafanas_types() -> None:
    """Reads it with Grafana's library of types, which is generated from Grafana's schemas; nothing of it is unknown."""
    register_default_plugins()
    document = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))

    def fields(of: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        if isinstance(of, dict):
            for name, value in of.items():
                yield from fields(value, f"{path}.{name}")
        elif isinstance(of, list):
            for position, value in enumerate(of):
                yield from fields(value, f"{path}[{position}]")
        else:
            yield path, of

    kept = dict(fields(read))
    assert {path: value for path, value in fields(document) if kept.get(path) != value} == {}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there: apt install prometheus")
def test_the_alert_rules_load() -> None:
    command = [PROMTOOL, "check", "rules", MONITORING / "alerts.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not there: apt install prometheus")
def test_a_prometheus_reads_a_daemon_at_work(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--workers", "cpu:1") as site,
        prometheus(tmp_path, site.port) as server,
        started(PROGRAM, GT_SOCKET=str(site.socket)) as client,
    ):
        assert line_of(client) == ""
        eventually(lambda: server.value('up{job="gtd"}') == [1], "a scrape")
        eventually(lambda: server.value("sum(rate(gt_worker_busy_seconds_total[5s])) > 0"), "utilisation")
        (target,) = server.asks("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        # Its counts are those of the daemon at some time between two of ours.
        matmuls = 'sum(gt_operations_total{operation="matmul"})'
        before = site.value("gt_operations_total", operation="matmul")
        (scraped,) = eventually(lambda: [v for v in server.value(matmuls) if v >= before], "a scrape after that")
        assert before <= scraped <= site.value("gt_operations_total", operation="matmul")
        # Every panel of the dashboard has data, every alert is evaluated, and none fires.
        dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
        for panel in dashboard["panels"]:
            for asked in panel.get("targets", ()):
                expression = asked["expr"].replace("$__rate_interval", "5s").replace("$instance", ".*")
                is_quiet = any(word in expression for word in QUIET)
                found = (
                    server.value(expression)
                    if is_quiet
                    else eventually(lambda e=expression: server.value(e), expression)
                )
                assert is_quiet or found
        (group,) = server.asks("rules")["groups"]
        eventually(
            lambda: all(rule["health"] == "ok" for rule in server.asks("rules")["groups"][0]["rules"]), "all rules"
        )
        assert len(group["rules"]) == 10
        assert server.asks("alerts")["alerts"] == []
        # The daemon's end is an alert, when it has lasted.
        site.process.terminate()
        eventually(lambda: server.value('up{job="gtd"}') == [0], "the daemon's end")
        eventually(
            lambda: [a["labels"]["alertname"] for a in server.asks("alerts")["alerts"]] == ["GtdDown"], "an alert"
        )
