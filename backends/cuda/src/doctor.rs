//! The findings of `gtctl doctor` about GPUs.

use gt_backend::{DoctorContext, Finding, ServiceUser};
use gt_nvidia::{CUBLAS_LT, CUDNN, Device, LibraryFound, NCCL, ProbeReport};
use rustix::fs::{Access, access};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time limit of the probe: a driver with many idle GPUs starts slowly.
const GPUS_LIMIT: Duration = Duration::from_secs(30);

/// The findings about NVIDIA's devices, driver and libraries.
pub fn findings(context: &DoctorContext<'_>) -> Vec<Finding> {
    if !gt_nvidia::is_there() {
        return vec![Finding::note(
            "gpus",
            "none: no NVIDIA driver runs here",
            "none is needed; for NVIDIA's, install the driver, or give the container the GPUs",
        )];
    }
    let report =
        match context.gtd.map(|gtd| gt_nvidia::probe_apart(Command::new(gtd).args(["probe", "cuda"]), GPUS_LIMIT)) {
            Some(report) => report,
            // `gtctl` ends soon, so it may use the driver itself.
            None => gt_nvidia::probe(),
        };
    gpu_findings(&report, context.bytes).into_iter().chain(gpu_files(context.service)).collect()
}

/// The findings about the driver, the devices and the libraries of a report.
fn gpu_findings(report: &ProbeReport, bytes: fn(u64) -> String) -> Vec<Finding> {
    let version = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let mut findings = Vec::new();
    match &report.devices {
        Ok(devices) => {
            let found = format!("{}, for CUDA {}", version(&report.driver), version(&report.cuda));
            findings.push(Finding::good("gpu driver", found));
            findings.extend(devices.iter().map(|device| gpu(device, bytes)));
        }
        Err(error) => {
            // The error's last clause usually says what to do.
            let next = "GT_DEVICES=cpu does without; nvidia-smi and dmesg may say more";
            findings.push(Finding::bad("gpu driver", error.to_string(), next));
        }
    }
    let several = report.devices.as_ref().is_ok_and(|devices| devices.len() > 1);
    for LibraryFound { name, needed, path } in &report.libraries {
        findings.push(match path {
            Ok(path) => Finding::good("gpu library", format!("{name}: {path}")),
            Err(why) if *needed && report.devices.is_ok() => {
                Finding::bad("gpu library", why.clone(), "no GPU is used without it")
            }
            Err(why) if name == CUBLAS_LT.name && report.devices.is_ok() => Finding::note(
                "gpu library",
                why.clone(),
                "GT's own kernels multiply matrices without it, which takes longer",
            ),
            Err(why) if name == CUDNN.name && report.devices.is_ok() => Finding::note(
                "gpu library",
                why.clone(),
                "convolutions become products of matrices without it, which takes longer",
            ),
            Err(why) if name == NCCL.name && several => Finding::note(
                "gpu library",
                why.clone(),
                "several GPUs exchange through the processor's memory without it",
            ),
            // A library that nothing would use is no finding.
            Err(_) => continue,
        });
    }
    findings
}

/// The finding about one device and the processes that use it.
fn gpu(device: &Device, bytes: fn(u64) -> String) -> Finding {
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
        Some(trouble) => Finding::bad("gpu", found, trouble),
        None => Finding::good("gpu", found),
    };
    Finding { device: serde_json::to_value(device).ok(), ..finding }
}

/// The driver's device files: those that this user cannot open, which the driver itself reports less clearly; beside a
/// system's daemon, those that others than it can open.
fn gpu_files(service: Option<ServiceUser>) -> Vec<Finding> {
    let named = |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut devices: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name != "nvidia" && named(name)))
        .map(|entry| entry.path())
        .collect();
    devices.sort();
    let mut findings = Vec::new();
    let usable = Access::READ_OK | Access::WRITE_OK;
    if let Some(service) = service {
        let control = PathBuf::from("/dev/nvidiactl");
        let files = devices.iter().chain([&control]).filter_map(|path| DeviceFile::at(path));
        findings.extend(doors(&files.collect::<Vec<_>>(), service));
    }
    let closed = devices.iter().filter(|path| service.is_none() && access(path.as_path(), usable).is_err());
    let closed: Vec<String> = closed.map(|path| path.display().to_string()).collect();
    if !closed.is_empty() {
        let next = "the daemon's user needs to: see DeviceAllow= of gtd.service";
        findings.push(Finding::bad("gpu files", format!("{} cannot be opened by you", closed.join(", ")), next));
    }
    if !devices.is_empty() && !Path::new("/dev/nvidia-uvm").exists() {
        findings.push(Finding::bad(
            "gpu files",
            "no /dev/nvidia-uvm",
            "nvidia-modprobe -c 0 -u, or nvidia-persistenced",
        ));
    }
    findings
}

/// A device file, and who may open it.
struct DeviceFile {
    path: String,
    uid: u32,
    gid: u32,
    mode: u32,
}

impl DeviceFile {
    fn at(path: &Path) -> Option<DeviceFile> {
        let file = std::fs::metadata(path).ok()?;
        let (uid, gid, mode) = (file.uid(), file.gid(), file.mode() & 0o777);
        Some(DeviceFile { path: path.display().to_string(), uid, gid, mode })
    }
}

/// The finding about device files beside a system's daemon, whose limits hold only for those who cannot open them.
fn doors(files: &[DeviceFile], service: ServiceUser) -> Option<Finding> {
    const OTHERS: u32 = 0o006;
    const GROUP: u32 = 0o060;
    const OWNER: u32 = 0o600;
    let what = "gpu files";
    let listed = |files: &[&DeviceFile]| {
        let texts = files.iter().map(|f| format!("{} ({:o}, user {}, group {})", f.path, f.mode, f.uid, f.gid));
        texts.collect::<Vec<_>>().join(", ")
    };
    let next = format!(
        "keep them to the daemon: \"options nvidia NVreg_DeviceFileUID={} NVreg_DeviceFileGID=0 \
         NVreg_DeviceFileMode=0600\" in /etc/modprobe.d/gt.conf, then load the driver again (docs/administration.md)",
        service.uid
    );
    let is_open = |f: &&DeviceFile| f.mode & OTHERS != 0 || (f.gid == service.gid && f.mode & GROUP != 0);
    let open: Vec<&DeviceFile> = files.iter().filter(is_open).collect();
    if !open.is_empty() {
        let text = format!("{} can be opened by programs of users, which then have no limits", listed(&open));
        return Some(Finding::note(what, text, next));
    }
    let is_lost = |f: &&DeviceFile| service.uid != 0 && (f.uid != service.uid || f.mode & OWNER != OWNER);
    let lost: Vec<&DeviceFile> = files.iter().filter(is_lost).collect();
    match (lost.is_empty(), files.is_empty()) {
        (_, true) => None,
        (true, _) => {
            Some(Finding::good(what, format!("{}: for the daemon alone", listed(&files.iter().collect::<Vec<_>>()))))
        }
        (false, _) => {
            let text = format!("{} cannot be opened by the daemon, which is user {}", listed(&lost), service.uid);
            Some(Finding::bad(what, text, next))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_backend::{FindingState, findings_text};

    #[test]
    fn device_files_are_for_the_daemon_alone() {
        let service = ServiceUser { uid: 990, gid: 980 };
        let found = |uid, gid, mode| {
            let file = |path: &str| DeviceFile { path: path.into(), uid, gid, mode };
            doors(&[file("/dev/nvidia0"), file("/dev/nvidiactl")], service).unwrap()
        };
        assert_eq!(found(990, 0, 0o600).state, FindingState::Good);
        let open = found(0, 0, 0o666);
        assert_eq!(open.state, FindingState::Note);
        assert!(open.found.starts_with("/dev/nvidia0 (666, user 0, group 0), /dev/nvidiactl (666,"), "{}", open.found);
        assert!(open.next.unwrap().contains("NVreg_DeviceFileUID=990 NVreg_DeviceFileGID=0 NVreg_DeviceFileMode=0600"));
        // The group of the daemon is that of its clients.
        assert_eq!(found(0, 980, 0o660).state, FindingState::Note);
        let lost = found(0, 44, 0o660);
        assert_eq!(lost.state, FindingState::Bad);
        assert!(lost.found.ends_with("cannot be opened by the daemon, which is user 990"), "{}", lost.found);
        assert!(doors(&[], service).is_none());
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
            {"name": "cuDNN", "needed": false, "path": {"Err": "cuDNN was not found: pip install it"}},
            {"name": "NCCL", "needed": false, "path": {"Err": "NCCL was not found"}}]}"#;
        let findings = gpu_findings(&serde_json::from_str(report).unwrap(), |bytes| {
            format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
        });
        let text = findings_text(&findings);
        for part in [
            "ok    gpu driver   580.95.05, for CUDA 13.0",
            "ok    gpu          cuda:0 is NVIDIA H200, 9.0, 140.0 GiB, 1.0 GiB free; python 7 has 2.0 GiB; 0000:65:00.0, GPU-1",
            "BAD   gpu          cuda:1 is NVIDIA H200",
            "cuda:1 may not be used: its compute mode is Prohibited: `nvidia-smi -c 0` as root lifts that",
            "BAD   gpu library  NVRTC was not found: pip install it",
            "ok    gpu library  cuBLASLt: /x/libcublasLt.so.13",
            "note  gpu library  cuDNN was not found: pip install it",
            "convolutions become products of matrices without it, which takes longer",
            "note  gpu library  NCCL was not found",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json[1]["device"]["holders"][0]["pid"], 7);
    }
}
