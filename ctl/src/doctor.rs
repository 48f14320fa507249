//! `gtctl doctor`: what keeps programs from using the daemon, or makes them slow, and how to mend it.
//!
//! Each check is a finding. None changes anything.

use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use crate::table::bytes;
use gt_config::SYSTEM_FILE;
use gt_nvidia::{CUBLAS_LT, Device, Found, NCCL, Report};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Group, Uid, User};
use serde::Serialize;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The group whose members may connect to the system's daemon.
const GROUP: &str = "gt";
/// Descriptors that a busy daemon may need.
const DESCRIPTORS_MIN: u64 = 4096;
/// Memory in which devices copy fastest is pinned; less of it than this is soon used up.
const PINNED_BYTES_MIN: u64 = 1 << 30;
/// The driver of many GPUs that nobody uses may take so long to say which there are.
const GPUS_LIMIT: Duration = Duration::from_secs(30);
/// Free memory below which a daemon is of little use.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// As it should be.
    Good,
    /// Worth to know.
    Note,
    /// Keeps programs from the daemon, or the daemon from working.
    Bad,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct CheckResult {
    /// What.
    what: &'static str,
    state: Severity,
    found: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// All that is known of a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
}

fn good(what: &'static str, found: impl Into<String>) -> CheckResult {
    CheckResult { what, state: Severity::Good, found: found.into(), next: None, device: None }
}

fn note(what: &'static str, found: impl Into<String>, next: impl Into<String>) -> CheckResult {
    CheckResult { what, state: Severity::Note, found: found.into(), next: Some(next.into()), device: None }
}

fn bad(what: &'static str, found: impl Into<String>, next: impl Into<String>) -> CheckResult {
    CheckResult { what, state: Severity::Bad, found: found.into(), next: Some(next.into()), device: None }
}

/// Looks at everything, for the daemon at `socket`.
pub fn answer(socket: &Path) -> CommandOutput {
    let mut findings = vec![program()];
    findings.extend(units());
    findings.extend(configuration());
    findings.push(socket_file(socket));
    findings.extend(group(socket));
    let (reached, pid) = daemon(socket);
    findings.push(reached);
    findings.extend(limits(pid));
    findings.extend(kernel());
    findings.extend(memory());
    findings.extend(gpus());
    let any_bad = findings.iter().any(|finding| finding.state == Severity::Bad);
    let exit = if any_bad { Exit::Failed } else { Exit::Good };
    CommandOutput { exit, ..CommandOutput::new(text(&findings), &findings) }
}

fn text(findings: &[CheckResult]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for CheckResult { what, state, found, next, .. } in findings {
        let mark = match state {
            Severity::Good => "ok  ",
            Severity::Note => "note",
            Severity::Bad => "BAD ",
        };
        text.push_str(&format!("{mark}  {what:<width$}  {found}\n"));
        if let Some(next) = next {
            text.push_str(&format!("{:indent$}→ {next}\n", "", indent = width + 8));
        }
    }
    text
}

/// Whether the `gtd` that would be started is of this version.
fn program() -> CheckResult {
    let what = "gtd";
    let own = env!("CARGO_PKG_VERSION");
    let path = beside().unwrap_or_else(|| "gtd".into());
    match Command::new(&path).arg("--version").output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            match said.trim().strip_prefix("gtd ") {
                Some(version) if version == own => good(what, format!("{} {version}, as gtctl", path.display())),
                Some(version) => bad(
                    what,
                    format!("{} is {version}, gtctl is {own}", path.display()),
                    "install both from one package",
                ),
                None => bad(what, format!("{} does not say its version", path.display()), "install it again"),
            }
        }
        Err(error) => note(
            what,
            format!("no gtd beside gtctl or on PATH: {error}"),
            "install it where daemons are to be started: apt install ./gtd_*.deb, or pip install",
        ),
    }
}

/// The `gtd` that was installed with this program.
fn beside() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().map(|gtctl| gtctl.with_file_name("gtd"));
    beside.filter(|path| path.is_file())
}

/// How systemd's units stand, where it runs.
fn units() -> Vec<CheckResult> {
    if !Path::new("/run/systemd/system").is_dir() {
        return vec![note("systemd", "does not run here", "start gtd by hand where programs are to share it")];
    }
    let state = |unit: &str| {
        let output = Command::new("systemctl").args(["is-active", unit]).output();
        output
            .map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let of = |what, unit, next: &str| match state(unit).as_str() {
        found @ ("active" | "reloading" | "activating") => good(what, found),
        "failed" => bad(what, "failed", format!("systemctl status {unit}, journalctl -u {unit}; then start it again")),
        found => note(what, found, next),
    };
    vec![
        of("gtd.socket", "gtd.socket", "systemctl enable --now gtd.socket"),
        of("gtd.service", "gtd.service", "the first who connects to gtd.socket starts it"),
    ]
}

fn configuration() -> Option<CheckResult> {
    let what = "configuration";
    let path = Path::new(SYSTEM_FILE);
    path.exists().then(|| match gt_config::read(path) {
        Ok(_) => good(what, SYSTEM_FILE),
        Err(error) => bad(what, error.to_string(), "mend the file; then gtctl reload, or start the daemon"),
    })
}

/// What is where the daemon's socket should be.
fn socket_file(path: &Path) -> CheckResult {
    let what = "socket";
    if path.to_string_lossy().starts_with('@') {
        return good(what, format!("{}, an abstract name", path.display()));
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            let owner = User::from_uid(Uid::from_raw(meta.uid())).ok().flatten().map(|user| user.name);
            let group = Group::from_gid(meta.gid().into()).ok().flatten().map(|group| group.name);
            let (owner, group) = (owner.unwrap_or(meta.uid().to_string()), group.unwrap_or(meta.gid().to_string()));
            good(what, format!("{}, {owner}:{group} {:o}", path.display(), meta.permissions().mode() & 0o777))
        }
        Ok(_) => bad(what, format!("{} is no socket", path.display()), "remove it, and start the daemon again"),
        Err(error) => {
            bad(what, format!("{}: {error}", path.display()), "systemctl start gtd.socket, or start gtd by hand")
        }
    }
}

/// Whether this user is in the group that may connect.
fn group(socket: &Path) -> Option<CheckResult> {
    let what = "group";
    if socket != Path::new(gt_protocol::path::SYSTEM_SOCKET) {
        return None;
    }
    let Ok(Some(group)) = Group::from_name(GROUP) else {
        return Some(bad(what, format!("the system has no group {GROUP}"), "systemd-sysusers, or install the package"));
    };
    let groups = nix::unistd::getgroups().unwrap_or_default();
    let member = groups.contains(&group.gid) || nix::unistd::getegid() == group.gid;
    Some(if member || nix::unistd::geteuid().is_root() {
        good(what, if member { format!("you are in {GROUP}") } else { "you are root".into() })
    } else {
        let next = format!("usermod -aG {GROUP} NAME as root, then log in again");
        bad(what, format!("you are not in {GROUP}, whose members may connect"), next)
    })
}

/// Whether the daemon answers, and its process.
fn daemon(socket: &Path) -> (CheckResult, Option<u32>) {
    let what = "daemon";
    let own = env!("CARGO_PKG_VERSION");
    match crate::connect(socket) {
        Ok(daemon) => {
            let welcome = &daemon.welcome;
            let (version, pid) = (&welcome.daemon_version, welcome.daemon_pid);
            let workers: Vec<&str> = welcome.workers.iter().map(|worker| worker.name.as_str()).collect();
            let found = format!("gtd {version} answers, process {pid}, workers {}", workers.join(", "));
            let finding = if version == own {
                good(what, found)
            } else {
                note(what, format!("{found}; gtctl is {own}"), "after an upgrade: systemctl restart gtd")
            };
            (finding, Some(pid))
        }
        Err(error) => {
            let CommandFailure { text, next, .. } = CommandFailure::of(&error);
            (bad(what, text, next), None)
        }
    }
}

/// Limits that the system sets: of the daemon if its process can be looked at, otherwise of this one.
fn limits(daemon: Option<u32>) -> Vec<CheckResult> {
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
        None => note(what, "is not known", "cat /proc/PID/limits"),
        Some(u64::MAX) => good(what, format!("{whose}: no limit")),
        Some(limit) if limit >= min => good(what, format!("{whose}: {}", text(limit))),
        Some(limit) => note(what, format!("{whose}: {}, less than {}", text(limit), text(min)), next),
    };
    let pinned = soft("Max locked memory", Resource::RLIMIT_MEMLOCK);
    let files = soft("Max open files", Resource::RLIMIT_NOFILE);
    vec![
        finding("pinned memory", pinned, PINNED_BYTES_MIN, bytes, "LimitMEMLOCK= of gtd.service, or ulimit -l"),
        finding("descriptors", files, DESCRIPTORS_MIN, |n| n.to_string(), "LimitNOFILE= of gtd.service, or ulimit -n"),
    ]
}

/// What the daemon needs of the kernel.
fn kernel() -> Vec<CheckResult> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let sealed = memfd_create("gt-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|fd| fcntl_add_seals(&fd, SealFlags::SHRINK));
    let needed = [("sealed memory", sealed.is_ok()), ("pidfd", pidfd_open(getpid(), PidfdFlags::empty()).is_ok())];
    let missing: Vec<&str> = needed.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
    vec![if missing.is_empty() {
        good("kernel", format!("{release}: sealed memory, pidfd"))
    } else {
        bad(
            "kernel",
            format!("{release} lacks {}", missing.join(", ")),
            "Linux 5.10 or newer, without a filter on these",
        )
    }]
}

/// Memory that is free, and the shared memory that workers' libraries use.
fn memory() -> Vec<CheckResult> {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let mut findings = vec![match kib.map(|kib| kib * 1024) {
        Some(free) if free >= FREE_BYTES_MIN => good("memory", format!("{} available", bytes(free))),
        Some(free) => {
            bad("memory", format!("{} available", bytes(free)), "end other programs, or sessions: gtctl sessions")
        }
        None => note("memory", "is not known", "/proc/meminfo says it"),
    }];
    findings.push(match nix::sys::statvfs::statvfs("/dev/shm") {
        Ok(stat) => good("/dev/shm", format!("{} free", bytes(stat.blocks_available() * stat.fragment_size()))),
        Err(errno) => note("/dev/shm", errno.to_string(), "mount a tmpfs there: several GPUs need it (NCCL)"),
    });
    findings
}

/// NVIDIA's devices, driver and libraries.
fn gpus() -> Vec<CheckResult> {
    if !gt_nvidia::is_there() {
        return vec![note(
            "gpus",
            "none: no NVIDIA driver runs here",
            "none is needed; for NVIDIA's, install the driver, or give the container the GPUs",
        )];
    }
    let report = match beside().map(|gtd| gt_nvidia::probe_apart(Command::new(gtd).arg("probe"), GPUS_LIMIT)) {
        Some(report) => report,
        // This program has little else to do, and ends soon.
        None => gt_nvidia::probe(),
    };
    gpu_findings(&report).into_iter().chain(gpu_files()).collect()
}

/// What the driver and the libraries are found to be.
fn gpu_findings(report: &Report) -> Vec<CheckResult> {
    let version = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let mut findings = Vec::new();
    match &report.devices {
        Ok(devices) => {
            let found = format!("{}, for CUDA {}", version(&report.driver), version(&report.cuda));
            findings.push(good("gpu driver", found));
            findings.extend(devices.iter().map(gpu));
        }
        Err(error) => {
            // Its sentence says what to do after the last colon, if anything is known.
            let next = "GT_DEVICES=cpu does without; nvidia-smi and dmesg may say more";
            findings.push(bad("gpu driver", error.to_string(), next));
        }
    }
    let several = report.devices.as_ref().is_ok_and(|devices| devices.len() > 1);
    for Found { name, needed, path } in &report.libraries {
        findings.push(match path {
            Ok(path) => good("gpu library", format!("{name}: {path}")),
            Err(why) if *needed && report.devices.is_ok() => {
                bad("gpu library", why.clone(), "no GPU is used without it")
            }
            Err(why) if name == CUBLAS_LT.name && report.devices.is_ok() => {
                note("gpu library", why.clone(), "GT's own kernels multiply matrices without it, which takes longer")
            }
            Err(why) if name == NCCL.name && several => {
                note("gpu library", why.clone(), "several GPUs exchange through the processor's memory without it")
            }
            // What is missing where nothing can be used, or nothing is lost, is no news.
            Err(_) => continue,
        });
    }
    findings
}

/// A device, and who uses it.
fn gpu(device: &Device) -> CheckResult {
    let Device { number, name, capability: (major, minor), memory_bytes, pci, uuid, .. } = device;
    let mut found = format!("cuda:{number} is {name}, {major}.{minor}, {}", bytes(*memory_bytes));
    if let Some(free) = device.free_bytes {
        found.push_str(&format!(", {} free", bytes(free)));
    }
    let holders: Vec<String> = device
        .holders
        .iter()
        .map(|holder| match holder.bytes {
            Some(held) => format!("{holder} has {}", bytes(held)),
            None => format!("{holder} uses it"),
        })
        .collect();
    if !holders.is_empty() {
        found.push_str(&format!("; {}", holders.join(", ")));
    }
    found.push_str(&format!("; {pci}, {uuid}"));
    let finding = match device.trouble() {
        Some(trouble) => bad("gpu", found, trouble),
        None => good("gpu", found),
    };
    CheckResult { device: Some(device.clone()), ..finding }
}

/// Whether the files of the driver can be opened, which says more than the driver does when it cannot.
fn gpu_files() -> Vec<CheckResult> {
    let named = |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut devices: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name != "nvidia" && named(name)))
        .map(|entry| entry.path())
        .collect();
    devices.sort();
    let mut findings = Vec::new();
    let usable = nix::unistd::AccessFlags::R_OK | nix::unistd::AccessFlags::W_OK;
    let closed = devices.iter().filter(|path| nix::unistd::access(path.as_path(), usable).is_err());
    let closed: Vec<String> = closed.map(|path| path.display().to_string()).collect();
    if !closed.is_empty() {
        let next = "the daemon's user needs to: see DeviceAllow= of gtd.service";
        findings.push(bad("gpu files", format!("{} cannot be opened by you", closed.join(", ")), next));
    }
    if !devices.is_empty() && !Path::new("/dev/nvidia-uvm").exists() {
        findings.push(bad("gpu files", "no /dev/nvidia-uvm", "nvidia-modprobe -c 0 -u, or nvidia-persistenced"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_not_there_is_bad_and_says_what_to_do() {
        let answer = answer(Path::new("/nowhere/gtd.sock"));
        assert_eq!(answer.exit, Exit::Failed);
        assert!(answer.text.contains("BAD   socket"), "{}", answer.text);
        let daemon = answer.json.as_array().into_iter().flatten().find(|finding| finding["what"] == "daemon");
        let next = daemon.and_then(|finding| finding["next"].as_str()).unwrap_or_default();
        assert!(next.contains("systemctl start gtd"), "{next}");
    }

    #[test]
    fn gpus_say_what_they_are_who_uses_them_and_what_is_missing() {
        let report = r#"{"driver": "580.95.05", "cuda": "13.0", "devices": {"Ok": [
            {"number": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "capability": [9, 0], "memory_bytes": 150323855360,
             "pci": "0000:65:00.0", "mig": false, "compute_mode": "shared", "multiprocessors": 132,
             "clock_khz": 1980000, "memory_clock_khz": 3201000, "memory_bus_bits": 6144, "free_bytes": 1073741824,
             "holders": [{"pid": 7, "name": "python", "bytes": 2147483648}]},
            {"number": 1, "name": "NVIDIA H200", "uuid": "GPU-2", "capability": [9, 0], "memory_bytes": 150323855360,
             "pci": "0000:66:00.0", "mig": false, "compute_mode": "prohibited", "multiprocessors": 132,
             "clock_khz": 1980000, "memory_clock_khz": 3201000, "memory_bus_bits": 6144, "free_bytes": null,
             "holders": []}]},
          "libraries": [{"name": "NVRTC", "needed": true, "path": {"Err": "NVRTC was not found: pip install it"}},
            {"name": "cuBLASLt", "needed": true, "path": {"Ok": "/x/libcublasLt.so.13"}},
            {"name": "NCCL", "needed": false, "path": {"Err": "NCCL was not found"}}]}"#;
        let findings = gpu_findings(&serde_json::from_str(report).unwrap());
        let text = text(&findings);
        for part in [
            "ok    gpu driver   580.95.05, for CUDA 13.0",
            "ok    gpu          cuda:0 is NVIDIA H200, 9.0, 140.0 GiB, 1.0 GiB free; python 7 has 2.0 GiB; 0000:65:00.0, GPU-1",
            "BAD   gpu          cuda:1 is NVIDIA H200",
            "cuda:1 may not be used: its compute mode is Prohibited: `nvidia-smi -c 0` as root lifts that",
            "BAD   gpu library  NVRTC was not found: pip install it",
            "ok    gpu library  cuBLASLt: /x/libcublasLt.so.13",
            "note  gpu library  NCCL was not found",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json[1]["device"]["holders"][0]["pid"], 7);
    }
}
