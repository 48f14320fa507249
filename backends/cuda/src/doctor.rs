//! The findings of `gtctl doctor` about GPUs.

use crate::catalogue::catalogue;
use crate::compile::nvrtc::{Nvrtc, base_options};
use crate::compile::prebuilt::{Architecture, CudaVersion, FILE_VARIABLE, KernelFile, KernelPlace};
use crate::template::{images, source};
use gt_backend::{DoctorContext, Finding, ServiceUser};
use gt_nvidia::{CUBLAS_LT, CUDNN, Device, LibraryFound, NCCL, NVRTC, Opened, ProbeReport, SharedLibrary};
use rustix::fs::{Access, access};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time limit of the probe: a driver with many idle GPUs starts slowly.
const GPUS_LIMIT: Duration = Duration::from_secs(30);

/// The findings about NVIDIA's devices, driver and libraries.
pub fn findings(context: &DoctorContext<'_>) -> Vec<Finding> {
    let own = std::env::current_exe().ok();
    let place = context.gtd.or(own.as_deref()).map(KernelPlace::of);
    if !gt_nvidia::is_there() {
        let none = Finding::note(
            "gpus",
            "none: no NVIDIA driver runs here",
            "none is needed; for NVIDIA's, install the driver, or give the container the GPUs",
        );
        let kernels = place.and_then(|place| kernels_finding(&place, None));
        return [none].into_iter().chain(kernels).collect();
    }
    let mut report =
        match context.gtd.map(|gtd| gt_nvidia::probe_apart(Command::new(gtd).args(["probe", "cuda"]), GPUS_LIMIT)) {
            Some(report) => report,
            // `gtctl` ends soon, so it may use the driver itself.
            None => gt_nvidia::probe(),
        };
    open_libraries(&mut report);
    let mut findings = gpu_findings(&report, context.bytes);
    findings.extend(place.iter().flat_map(|place| kernels_findings(place, &report)));
    findings.extend(gpu_files(context.service));
    findings
}

/// The version of CUDA that the driver is for.
fn driver_version(report: &ProbeReport) -> Option<CudaVersion> {
    let (major, minor) = report.cuda.as_ref()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Opens the libraries of a report, which has only looked for their files, and notes those that cannot be used.
fn open_libraries(report: &mut ProbeReport) {
    let driver = driver_version(report);
    let capabilities: Vec<u32> =
        report.devices.iter().flatten().map(|device| 10 * device.capability.0 + device.capability.1).collect();
    // The compiler has to have code for each device; that the others can be loaded is enough.
    let usable = |library: &SharedLibrary, opened: Opened| match driver {
        Some(driver) if library.name == NVRTC.name => {
            let compiles = |capability| Nvrtc::for_device(opened.clone(), capability, driver).map(drop);
            capabilities.iter().copied().try_for_each(compiles)
        }
        _ => Ok(()),
    };
    for found in &mut report.libraries {
        let known = [&NVRTC, &CUBLAS_LT, &CUDNN, &NCCL].into_iter().find(|library| library.name == found.name);
        if let (Some(library), Ok(path)) = (known, &found.path)
            && let Err(missing) = library.open_first(&[PathBuf::from(path)], |opened| usable(library, opened))
        {
            found.path = Err(missing.to_string());
        }
    }
}

/// The findings about the file of kernels that were compiled beforehand, one for each kind of device.
fn kernels_findings(place: &KernelPlace, report: &ProbeReport) -> Vec<Finding> {
    let driver = driver_version(report);
    let mut seen = Vec::new();
    for device in report.devices.iter().flatten() {
        if !seen.iter().any(|other: &&Device| other.capability == device.capability) {
            seen.push(device);
        }
    }
    match driver {
        Some(driver) if !seen.is_empty() => {
            seen.into_iter().filter_map(|device| kernels_finding(place, Some((device, driver)))).collect()
        }
        _ => kernels_finding(place, None).into_iter().collect(),
    }
}

/// The finding about the file of kernels that were compiled beforehand, for a device and the version of CUDA that its
/// driver is for. Without a device, a file that is not where it would be is no finding.
fn kernels_finding(place: &KernelPlace, device: Option<(&Device, CudaVersion)>) -> Option<Finding> {
    let what = "gpu kernels";
    let make =
        format!("make cuda-kernels makes the file, and {FILE_VARIABLE} names it; without it the first steps wait");
    let path = match place {
        KernelPlace::Off => {
            let next = "unset it, so that the first steps do not wait for the compiler";
            return Some(Finding::note(what, format!("compiled at first use: {FILE_VARIABLE} is 0"), next));
        }
        KernelPlace::Beside(path) if !path.exists() => {
            let found = format!("compiled at first use: there is no {}", path.display());
            return device.map(|_| Finding::note(what, found, make));
        }
        KernelPlace::Named(path) | KernelPlace::Beside(path) => path,
    };
    let unusable = |why: String| Some(Finding::note(what, format!("{}: {why}", path.display()), make.clone()));
    let file = match KernelFile::open(path) {
        Ok(file) => file,
        Err(why) => return unusable(why),
    };
    let listed = file.architectures().iter().map(Architecture::to_string).collect::<Vec<_>>().join(", ");
    let by = format!("{listed}, by CUDA {}.{}", file.made_by().0, file.made_by().1);
    let right = match device {
        None => file.architectures().first().copied(),
        Some((device, driver)) => file.right_for(10 * device.capability.0 + device.capability.1, driver),
    };
    let Some(architecture) = right else {
        let to_whom = device.map_or_else(String::new, |(Device { number, capability: (major, minor), .. }, driver)| {
            format!("cuda:{number}, of capability {major}.{minor} with a driver for CUDA {}.{}", driver.0, driver.1)
        });
        let found = format!("{} has kernels for {by}, and none for {to_whom}", path.display());
        let next =
            "they are compiled at first use; the file's need a device of capability 8.0 and a driver for CUDA 13";
        return Some(Finding::note(what, found, next));
    };
    let wanted: Vec<String> = images(&catalogue()).iter().map(|keys| source(keys)).collect();
    let count = file.count(&wanted, architecture, &base_options());
    if count < wanted.len() {
        let own = env!("CARGO_PKG_VERSION");
        return unusable(format!("it is of another version than {own}: it has {count} of {} images", wanted.len()));
    }
    let used = device.map_or_else(String::new, |(device, _)| format!("; cuda:{} uses {architecture}", device.number));
    Some(Finding::good(what, format!("{}: {count} images for {by}{used}", path.display())))
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
    findings.extend(closed_files(&closed.filter_map(|path| DeviceFile::at(path)).collect::<Vec<_>>()));
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

/// The finding about device files that this user cannot open, so that a daemon of theirs has no GPU.
fn closed_files(closed: &[DeviceFile]) -> Option<Finding> {
    let first = closed.first()?;
    let next = format!(
        "join group {} if the mode lets it, or `chmod a+rw` as root; for the service, see DeviceAllow= of gtd.service",
        first.gid
    );
    Some(Finding::bad("gpu files", format!("{} cannot be opened by you", listed(closed)), next))
}

/// The files with their modes and owners.
fn listed<'a>(files: impl IntoIterator<Item = &'a DeviceFile>) -> String {
    let text = |f: &DeviceFile| format!("{} ({:o}, user {}, group {})", f.path, f.mode, f.uid, f.gid);
    files.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The finding about device files beside a system's daemon, whose limits hold only for those who cannot open them.
fn doors(files: &[DeviceFile], service: ServiceUser) -> Option<Finding> {
    const OTHERS: u32 = 0o006;
    const GROUP: u32 = 0o060;
    const OWNER: u32 = 0o600;
    let what = "gpu files";
    let next = format!(
        "keep them to the daemon: \"options nvidia NVreg_DeviceFileUID={} NVreg_DeviceFileGID=0 \
         NVreg_DeviceFileMode=0600\" in /etc/modprobe.d/gt.conf, then load the driver again (docs/administration.md)",
        service.uid
    );
    let is_open = |f: &&DeviceFile| f.mode & OTHERS != 0 || (f.gid == service.gid && f.mode & GROUP != 0);
    let open: Vec<&DeviceFile> = files.iter().filter(is_open).collect();
    if !open.is_empty() {
        let text = format!("{} can be opened by programs of users, which then have no limits", listed(open));
        return Some(Finding::note(what, text, next));
    }
    let is_lost = |f: &&DeviceFile| service.uid != 0 && (f.uid != service.uid || f.mode & OWNER != OWNER);
    let lost: Vec<&DeviceFile> = files.iter().filter(is_lost).collect();
    match (lost.is_empty(), files.is_empty()) {
        (_, true) => None,
        (true, _) => Some(Finding::good(what, format!("{}: for the daemon alone", listed(files)))),
        (false, _) => {
            let text = format!("{} cannot be opened by the daemon, which is user {}", listed(lost), service.uid);
            Some(Finding::bad(what, text, next))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::prebuilt::{ImagePacking, write};
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
        let file = DeviceFile { path: "/dev/nvidia0".into(), uid: 0, gid: 44, mode: 0o660 };
        let closed = closed_files(&[file]).unwrap();
        assert_eq!(closed.found, "/dev/nvidia0 (660, user 0, group 44) cannot be opened by you");
        assert!(closed.next.unwrap().starts_with("join group 44 if the mode lets it, or `chmod a+rw` as root"));
        assert!(closed_files(&[]).is_none());
    }

    /// A device of this capability.
    fn device(capability: (u32, u32)) -> Device {
        let text = r#"{"number": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "capability": [9, 0], "memory_bytes": 1,
            "pci": "0000:65:00.0", "mig": false, "compute_mode": "shared", "multiprocessors": 132,
            "clock_khz": 1, "memory_clock_khz": 1, "memory_bus_bits": 1, "free_bytes": null, "holders": []}"#;
        Device { capability, ..serde_json::from_str(text).unwrap() }
    }

    #[test]
    fn the_file_of_compiled_kernels_says_whether_it_is_used_and_what_to_do_if_not() {
        let folder = std::env::temp_dir().join(format!("gt-doctor-kernels-{}", std::process::id()));
        let path = folder.join("cuda-kernels");
        let h200 = device((9, 0));
        let told = |place: &KernelPlace, device: Option<(&Device, CudaVersion)>| {
            kernels_finding(place, device).map(|finding| findings_text(&[finding])).unwrap_or_default()
        };
        let of = |architectures: &[Architecture], sources: &[String]| {
            let image =
                |architecture: &Architecture, source: &String| (*architecture, source.clone(), b"code".to_vec());
            let all: Vec<_> =
                sources.iter().flat_map(|source| architectures.iter().map(|of| image(of, source))).collect();
            write(&path, (13, 0), &base_options(), &all, ImagePacking::Compressed).unwrap();
        };
        let beside = KernelPlace::Beside(path.clone());
        let (place, on_h200) = (path.display(), Some((&h200, (13, 0))));

        // A machine without a GPU, or a pip-installed GT, has no file and needs none.
        assert_eq!(told(&beside, None), "");
        assert!(told(&beside, on_h200).starts_with(&format!(
            "note  gpu kernels  compiled at first use: there is no {place}\n{:19}→ make cuda-kernels makes the file, \
             and GT_CUDA_KERNELS names it",
            ""
        )));
        assert!(told(&KernelPlace::Named(path.clone()), None).contains("cuda-kernels: No such file or directory"));
        assert!(
            told(&KernelPlace::Off, on_h200)
                .starts_with("note  gpu kernels  compiled at first use: GT_CUDA_KERNELS is 0")
        );

        let sources: Vec<String> = images(&catalogue()).iter().map(|keys| source(keys)).collect();
        let both = [Architecture::Device(90), Architecture::Newer(90)];
        of(&both, &sources);
        let count = sources.len();
        let found = format!("ok    gpu kernels  {place}: {count} images for sm_90, compute_90, by CUDA 13.0");
        assert_eq!(told(&beside, None), format!("{found}\n"));
        assert_eq!(told(&beside, on_h200), format!("{found}; cuda:0 uses sm_90\n"));
        assert_eq!(told(&beside, Some((&device((12, 0)), (13, 0)))), format!("{found}; cuda:0 uses compute_90\n"));
        let without = told(&beside, Some((&device((7, 5)), (13, 0))));
        assert!(without.starts_with("note  "), "{without}");
        assert!(without.contains("and none for cuda:0, of capability 7.5 with a driver for CUDA 13.0"), "{without}");
        assert!(told(&beside, Some((&h200, (12, 8)))).contains("and none for cuda:0, of capability 9.0"));

        of(&both, &sources[..count - 1]);
        let older = told(&beside, on_h200);
        assert!(older.starts_with("note  "), "{older}");
        let version = env!("CARGO_PKG_VERSION");
        assert!(
            older.contains(&format!("it is of another version than {version}: it has {} of {count} images", count - 1)),
            "{older}"
        );
        std::fs::write(&path, "GT").unwrap();
        assert!(told(&beside, on_h200).contains("it does not begin with gt-cuda-kernels 1"));
        std::fs::remove_dir_all(folder).unwrap();
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
