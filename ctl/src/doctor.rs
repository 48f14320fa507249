//! `gtctl doctor`: checks for problems that keep programs from using the daemon or make them slow, and says how to fix
//! them. No check changes anything.

use crate::control::connect;
use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use crate::table::bytes;
use gt_backend::{DoctorContext, Finding, FindingState, ServiceUser, findings_text};
use gt_bridge::tls::Certificate;
use gt_config::{SYSTEM_FILE, Settings};
use gt_protocol::{Connection, InsecureNetwork, TcpStatus, UcxStatus};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Group, Uid, User};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The group whose members may connect to the system's daemon.
const GROUP: &str = "gt";
/// The user of the system's daemon.
const SERVICE_USER: &str = "gt";
/// The descriptors that a busy daemon may need.
const DESCRIPTORS_MIN: u64 = 4096;
/// A limit of pinned memory below this is soon reached. Copies from and to pinned memory are fastest.
const PINNED_BYTES_MIN: u64 = 1 << 30;
/// With less free memory than this, a daemon is of little use.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Runs all checks for the daemon at `socket`.
pub fn output(socket: &Path) -> CommandOutput {
    let mut findings = vec![program()];
    findings.extend(units());
    findings.extend(configuration());
    findings.push(socket_file(socket));
    findings.extend(group(socket));
    let (reached, pid) = daemon(socket);
    findings.push(reached);
    findings.extend(by_tcp(socket));
    findings.extend(between_machines(socket));
    findings.extend(metrics(socket));
    findings.extend(limits(pid));
    findings.extend(kernel());
    findings.extend(memory());
    findings.extend(devices());
    let any_bad = findings.iter().any(|finding| finding.state == FindingState::Bad);
    let exit = if any_bad { Exit::Failed } else { Exit::Good };
    CommandOutput { exit, ..CommandOutput::new(findings_text(&findings), &findings) }
}

/// Checks that the installed `gtd` is of this version.
fn program() -> Finding {
    let what = "gtd";
    let own = env!("CARGO_PKG_VERSION");
    let path = beside().unwrap_or_else(|| "gtd".into());
    match Command::new(&path).arg("--version").output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            match said.trim().strip_prefix("gtd ") {
                Some(version) if version == own => {
                    Finding::good(what, format!("{} {version}, as gtctl", path.display()))
                }
                Some(version) => Finding::bad(
                    what,
                    format!("{} is {version}, gtctl is {own}", path.display()),
                    "install both from one package",
                ),
                None => Finding::bad(what, format!("{} does not say its version", path.display()), "install it again"),
            }
        }
        Err(error) => Finding::note(
            what,
            format!("no gtd beside gtctl or on PATH: {error}"),
            "install it where daemons are to be started: apt install ./gtd_*.deb, or pip install",
        ),
    }
}

/// The `gtd` in the folder of this program.
fn beside() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|gtctl| gtctl.with_file_name("gtd"));
    beside.filter(|path| path.is_file())
}

/// Checks the systemd units.
fn units() -> Vec<Finding> {
    if !Path::new("/run/systemd/system").is_dir() {
        return vec![Finding::note("systemd", "does not run here", "start gtd by hand where programs are to share it")];
    }
    let state = |unit: &str| {
        let output = Command::new("systemctl").args(["is-active", unit]).output();
        output
            .map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let of = |what, unit, next: &str| match state(unit).as_str() {
        found @ ("active" | "reloading" | "activating") => Finding::good(what, found),
        "failed" => {
            Finding::bad(what, "failed", format!("systemctl status {unit}, journalctl -u {unit}; then start it again"))
        }
        found => Finding::note(what, found, next),
    };
    vec![
        of("gtd.socket", "gtd.socket", "systemctl enable --now gtd.socket"),
        of("gtd.service", "gtd.service", "the first who connects to gtd.socket starts it"),
    ]
}

/// The reason why the certificate for TLS in a configuration is unusable (bad), or soon will be (a note).
pub fn certificate_complaint(settings: &Settings) -> Option<(FindingState, String)> {
    match Certificate::named(settings.tls_certificate.as_deref(), settings.tls_key.as_deref()) {
        Ok(certificate) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let certificate = certificate?;
            let has_expired = certificate.time_left(now).is_some_and(|left| left.is_zero());
            let state = if has_expired { FindingState::Bad } else { FindingState::Note };
            certificate.expiry_warning(now).map(|warning| (state, warning))
        }
        Err(error) => Some((FindingState::Bad, error.to_string())),
    }
}

/// Says what travels by TCP without encryption.
fn by_tcp(socket: &Path) -> Option<Finding> {
    let what = "tcp";
    let Connection { socket, .. } = connect(socket).ok()?;
    let tcp = gt_protocol::ask_status(&socket).ok()?.tcp?;
    let TcpStatus { address, is_open, fingerprint, takes_plain } = tcp;
    Some(match (is_open, takes_plain) {
        (false, _) => Finding::good(what, format!("{address}, which other machines cannot reach; no network is used")),
        (true, false) => {
            Finding::good(what, format!("{address}, with TLS; certificate {}", fingerprint.unwrap_or_default()))
        }
        (true, true) => Finding::note(
            what,
            format!("{address} takes other machines without TLS: tokens and tensors can be read on the way"),
            "connect to the tls:// address that gtctl status prints; then listen_plain: off",
        ),
    })
}

/// Says whether tensors travel between machines without encryption, and whether they do by UCX if that is wanted.
fn between_machines(socket: &Path) -> Vec<Finding> {
    let Some(status) = connect(socket).ok().and_then(|found| gt_protocol::ask_status(&found.socket).ok()) else {
        return Vec::new();
    };
    let plain = plain_finding(status.insecure_network);
    plain.into_iter().chain(status.nodes_ucx.as_deref().map(ucx_finding)).collect()
}

fn plain_finding(network: InsecureNetwork) -> Option<Finding> {
    (network != InsecureNetwork::Off).then(|| {
        Finding::note(
            "nodes",
            format!("{}: whoever is on the network can read and change them", network.warning()),
            "use it on a network that nobody else is on; insecure_network: off encrypts them",
        )
    })
}

fn ucx_finding(UcxStatus { library, why_not }: &UcxStatus) -> Finding {
    let what = "ucx";
    match why_not {
        None => Finding::good(what, format!("version {library}, to nodes that have it as well")),
        Some(why) => Finding::note(
            what,
            format!("tensors travel to nodes by TCP instead: {why}"),
            "put that right and start the daemon again",
        ),
    }
}

/// Says where metrics are read.
fn metrics(socket: &Path) -> Option<Finding> {
    let Connection { socket, .. } = connect(socket).ok()?;
    let address = gt_protocol::ask_status(&socket).ok()?.metrics?;
    Some(Finding::good("metrics", format!("http://{address}/metrics, which other machines cannot reach")))
}

fn configuration() -> Option<Finding> {
    let what = "configuration";
    let path = Path::new(SYSTEM_FILE);
    path.exists().then(|| match gt_config::read(path) {
        Ok(settings) => match certificate_complaint(&settings) {
            None => Finding::good(what, SYSTEM_FILE),
            Some((state, why)) => {
                let next =
                    "name the files of a certificate in tls_certificate and tls_key; then gtctl reload, or start the daemon";
                Finding { state, ..Finding::bad(what, format!("{SYSTEM_FILE}: {why}"), next) }
            }
        },
        Err(error) => Finding::bad(what, error.to_string(), "mend the file; then gtctl reload, or start the daemon"),
    })
}

/// Checks the file of the daemon's socket.
fn socket_file(path: &Path) -> Finding {
    let what = "socket";
    if gt_protocol::path::is_abstract(path) {
        return Finding::note(
            what,
            format!("{}, an abstract name: every user of this machine may connect", path.display()),
            "on a shared machine, start gtd with a path, whose group and mode say who may",
        );
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            let owner = User::from_uid(Uid::from_raw(meta.uid())).ok().flatten().map(|user| user.name);
            let group = Group::from_gid(meta.gid().into()).ok().flatten().map(|group| group.name);
            let (owner, group) = (owner.unwrap_or(meta.uid().to_string()), group.unwrap_or(meta.gid().to_string()));
            Finding::good(what, format!("{}, {owner}:{group} {:o}", path.display(), meta.permissions().mode() & 0o777))
        }
        Ok(_) => {
            Finding::bad(what, format!("{} is no socket", path.display()), "remove it, and start the daemon again")
        }
        Err(error) => Finding::bad(
            what,
            format!("{}: {error}", path.display()),
            "systemctl start gtd.socket, or start gtd by hand",
        ),
    }
}

/// Checks that this user is in the group that may connect.
fn group(socket: &Path) -> Option<Finding> {
    let what = "group";
    if socket != Path::new(gt_protocol::path::SYSTEM_SOCKET) {
        return None;
    }
    let Ok(Some(group)) = Group::from_name(GROUP) else {
        return Some(Finding::bad(
            what,
            format!("the system has no group {GROUP}"),
            "systemd-sysusers, or install the package",
        ));
    };
    let groups = nix::unistd::getgroups().unwrap_or_default();
    let member = groups.contains(&group.gid) || nix::unistd::getegid() == group.gid;
    Some(if member || nix::unistd::geteuid().is_root() {
        Finding::good(what, if member { format!("you are in {GROUP}") } else { "you are root".into() })
    } else {
        let next = format!("usermod -aG {GROUP} NAME as root, then log in again");
        Finding::bad(what, format!("you are not in {GROUP}, whose members may connect"), next)
    })
}

/// Checks that the daemon answers. Also returns its process id.
fn daemon(socket: &Path) -> (Finding, Option<u32>) {
    let what = "daemon";
    let own = env!("CARGO_PKG_VERSION");
    match connect(socket) {
        Ok(daemon) => {
            let welcome = &daemon.welcome;
            let (version, pid) = (&welcome.daemon_version, welcome.daemon_pid);
            let workers: Vec<&str> = welcome.workers.iter().map(|worker| worker.name.as_str()).collect();
            let found = format!("gtd {version} answers, process {pid}, workers {}", workers.join(", "));
            let finding = if version == own {
                Finding::good(what, found)
            } else {
                Finding::note(what, format!("{found}; gtctl is {own}"), "after an upgrade: systemctl restart gtd")
            };
            (finding, Some(pid))
        }
        Err(error) => {
            let CommandFailure { text, next, .. } = CommandFailure::of(&error);
            (Finding::bad(what, text, next), None)
        }
    }
}

/// Checks the resource limits of the daemon's process if they can be read, else of this process.
fn limits(daemon: Option<u32>) -> Vec<Finding> {
    let theirs = daemon.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok());
    let whose = if theirs.is_some() { "the daemon's" } else { "this process's" };
    let soft = |name: &str, own: Resource| match &theirs {
        Some(limits) => {
            let line = limits.lines().find(|line| line.starts_with(name))?;
            let word = line[name.len()..].split_whitespace().next()?;
            if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() }
        }
        None => getrlimit(own).ok().map(|(soft, _)| soft),
    };
    let finding = |what, limit: Option<u64>, min, text: fn(u64) -> String, next: &str| match limit {
        None => Finding::note(what, "is not known", "cat /proc/PID/limits"),
        Some(u64::MAX) => Finding::good(what, format!("{whose}: no limit")),
        Some(limit) if limit >= min => Finding::good(what, format!("{whose}: {}", text(limit))),
        Some(limit) => Finding::note(what, format!("{whose}: {}, less than {}", text(limit), text(min)), next),
    };
    let pinned = soft("Max locked memory", Resource::RLIMIT_MEMLOCK);
    let files = soft("Max open files", Resource::RLIMIT_NOFILE);
    vec![
        finding("pinned memory", pinned, PINNED_BYTES_MIN, bytes, "LimitMEMLOCK= of gtd.service, or ulimit -l"),
        finding("descriptors", files, DESCRIPTORS_MIN, |n| n.to_string(), "LimitNOFILE= of gtd.service, or ulimit -n"),
    ]
}

/// Checks the kernel's features that the daemon needs.
fn kernel() -> Vec<Finding> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let sealed = memfd_create("gt-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|fd| fcntl_add_seals(&fd, SealFlags::SHRINK));
    let needed = [("sealed memory", sealed.is_ok()), ("pidfd", pidfd_open(getpid(), PidfdFlags::empty()).is_ok())];
    let missing: Vec<&str> = needed.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
    vec![if missing.is_empty() {
        Finding::good("kernel", format!("{release}: sealed memory, pidfd"))
    } else {
        Finding::bad(
            "kernel",
            format!("{release} lacks {}", missing.join(", ")),
            "Linux 5.10 or newer, without a filter on these",
        )
    }]
}

/// Checks the free memory, and the shared memory that NCCL uses.
fn memory() -> Vec<Finding> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let mut findings = vec![match kib.map(|kib| kib * 1024) {
        Some(free) if free >= FREE_BYTES_MIN => Finding::good("memory", format!("{} available", bytes(free))),
        Some(free) => Finding::bad(
            "memory",
            format!("{} available", bytes(free)),
            "end other programs, or sessions: gtctl sessions",
        ),
        None => Finding::note("memory", "is not known", "/proc/meminfo says it"),
    }];
    findings.push(match nix::sys::statvfs::statvfs("/dev/shm") {
        Ok(stat) => {
            Finding::good("/dev/shm", format!("{} free", bytes(stat.blocks_available() * stat.fragment_size())))
        }
        Err(errno) => Finding::note("/dev/shm", errno.to_string(), "mount a tmpfs there: several GPUs need it (NCCL)"),
    });
    findings
}

/// The user of the system's daemon, if one is configured.
fn service_user() -> Option<ServiceUser> {
    let user = User::from_name(SERVICE_USER).ok().flatten().filter(|_| Path::new(SYSTEM_FILE).exists())?;
    Some(ServiceUser { uid: user.uid.as_raw(), gid: user.gid.as_raw() })
}

/// The findings of every backend about its devices, driver and libraries.
fn devices() -> Vec<Finding> {
    let gtd = beside();
    let context = DoctorContext { gtd: gtd.as_deref(), service: service_user(), bytes };
    let backends = gt_backends::BACKENDS.iter().filter_map(|facts| facts.discovery.as_ref());
    backends.flat_map(|discovery| (discovery.doctor)(&context)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_whether_tensors_travel_unencrypted() {
        let library = "1.22.0, /lib/libucp.so.0".to_owned();
        let plain = plain_finding(InsecureNetwork::On).unwrap();
        assert!(plain.found.contains("unencrypted between machines: whoever is on the network"), "{plain:?}");
        assert!(plain_finding(InsecureNetwork::Off).is_none());
        let used = ucx_finding(&UcxStatus { library: library.clone(), why_not: None });
        assert!(used.found.contains("version 1.22.0, /lib/libucp.so.0"), "{used:?}");
        let unused = ucx_finding(&UcxStatus { library, why_not: Some("this machine has no RDMA device".into()) });
        assert!(unused.found.contains("by TCP instead: this machine has no RDMA device"), "{unused:?}");
    }

    #[test]
    fn an_abstract_socket_is_everybodys() {
        let finding = socket_file(Path::new("@gt-nobody"));
        assert!(finding.state == FindingState::Note && finding.found.contains("every user of this machine"));
    }

    #[test]
    fn a_socket_that_is_not_there_is_bad_and_says_what_to_do() {
        let answer = output(Path::new("/nowhere/gtd.sock"));
        assert_eq!(answer.exit, Exit::Failed);
        assert!(answer.text.contains("BAD   socket"), "{}", answer.text);
        let daemon = answer.json.as_array().into_iter().flatten().find(|finding| finding["what"] == "daemon");
        let next = daemon.and_then(|finding| finding["next"].as_str()).unwrap_or_default();
        assert!(next.contains("systemctl start gtd"), "{next}");
    }
}
