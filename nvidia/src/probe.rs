//! The probe: devices, libraries, and what is missing.

use crate::cuda::{CudaQuery, version_text};
use crate::device::{Device, NoCuda};
use crate::find::{CUBLAS_LT, CUDNN, DRIVER, Missing, NCCL, NVML, NVRTC, SharedLibrary};
use crate::nvml::Nvml;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The CUDA version that a driver must support to be usable: 12.0, which drivers from version 525 on support.
const CUDA_MIN: i32 = 12000;
/// The interval at which the probing process is polled for its end, once it has written its answer.
const NAP: Duration = Duration::from_millis(1);

/// The outcome of the search for a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryFound {
    /// The library's common name.
    pub name: String,
    /// Whether no GPU can be used without it.
    pub needed: bool,
    /// Its path, or why it cannot be used.
    pub path: Result<String, String>,
}

/// The probe's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The driver's version, as in 580.95.05, if NVML knows it.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports, as in 13.0.
    pub cuda: Option<String>,
    /// The devices, or why there are none.
    pub devices: Result<Vec<Device>, NoCuda>,
    /// The libraries.
    pub libraries: Vec<LibraryFound>,
}

impl ProbeReport {
    /// The reason why none of the devices can be used, if there is one: no driver, or a library that all of them need.
    pub fn trouble(&self) -> Option<String> {
        match &self.devices {
            Err(error) => Some(error.to_string()),
            Ok(_) => self.libraries.iter().filter(|found| found.needed).find_map(|found| found.path.clone().err()),
        }
    }

    /// The devices that can be used.
    pub fn usable(&self) -> impl Iterator<Item = &Device> {
        let devices = if self.trouble().is_none() { self.devices.as_deref().unwrap_or_default() } else { &[] };
        devices.iter().filter(|device| device.trouble().is_none())
    }
}

/// Whether a probe is worthwhile: if none of these files exists, the machine has no usable GPU, whatever else is
/// installed. Takes microseconds.
pub fn is_there() -> bool {
    // In turn: the driver's kernel module (the first user of a device makes /dev/nvidiactl), WSL, Tegra.
    ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// Probes in this process, which cannot undo its use of CUDA; see [`probe_apart`].
pub fn probe() -> ProbeReport {
    let (mut version, mut driver) = (None, None);
    let devices = CudaQuery::start().and_then(|cuda| {
        driver = Some(where_it_is(&cuda.path));
        let found = cuda.version()?;
        version = Some(found);
        if found < CUDA_MIN {
            return Err(NoCuda::DriverTooOld { found: version_text(found) });
        }
        match cuda.devices()? {
            devices if devices.is_empty() => Err(NoCuda::NoDevice("the driver knows none".into())),
            devices => Ok(devices),
        }
    });
    let nvml = Nvml::start();
    let mut report = ProbeReport {
        driver: nvml.as_ref().ok().and_then(Nvml::driver_version),
        cuda: version.map(version_text),
        devices,
        libraries: Vec::new(),
    };
    if let (Ok(nvml), Ok(devices)) = (&nvml, &mut report.devices) {
        devices.iter_mut().for_each(|device| nvml.add(device));
    }
    let cuda = version.map(|version| version as u32 / 1000);
    // The others are opened where they are used: together they have a gigabyte.
    let looked_for = |library: &SharedLibrary| library.locate(cuda).map(|path| path.display().to_string());
    let opened = |library: &SharedLibrary| library.open(None, |opened| Ok(where_it_is(&opened.path)));
    report.libraries = vec![
        found(&DRIVER, true, driver.map_or_else(|| opened(&DRIVER), Ok)),
        found(&NVRTC, true, looked_for(&NVRTC)),
        found(&CUBLAS_LT, false, looked_for(&CUBLAS_LT)),
        found(&CUDNN, false, looked_for(&CUDNN)),
        found(&NCCL, false, looked_for(&NCCL)),
        found(&NVML, false, nvml.map(|nvml| where_it_is(&nvml.path))),
    ];
    report
}

fn found(library: &SharedLibrary, needed: bool, path: Result<String, Missing>) -> LibraryFound {
    LibraryFound { name: library.name.into(), needed, path: path.map_err(|missing| missing.to_string()) }
}

/// The path of an opened library; for a bare name, that of the file that the loader mapped.
fn where_it_is(path: &Path) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let name = path.to_string_lossy();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut found = mapped.filter(|file| {
        path.components().count() == 1 && file.rsplit('/').next().is_some_and(|base| base.starts_with(&*name))
    });
    found.next().map_or_else(|| name.to_string(), str::to_owned)
}

/// Runs `program`, which must print the result of [`probe`] as JSON on standard output within `limit`.
pub fn probe_apart(program: &mut Command, limit: Duration) -> ProbeReport {
    ask(program, limit).unwrap_or_else(|error| ProbeReport {
        driver: None,
        cuda: None,
        devices: Err(NoCuda::Broken(error)),
        libraries: Vec::new(),
    })
}

fn ask(program: &mut Command, limit: Duration) -> Result<ProbeReport, String> {
    let deadline = Instant::now() + limit;
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("could not be started: {error}"))?;
    let mut out = child.stdout.take().ok_or("has no output")?;
    let (sender, said) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = out.read_to_end(&mut text).map(|_| text);
        let _ = sender.send(read);
    });
    let said = match said.recv_timeout(limit) {
        Ok(text) => text.map_err(|error| format!("could not be read: {error}")),
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "did not answer within {limit:?}: try again, since a driver's first start takes long, or keep it ready by \
             nvidia-persistenced"
        )),
        Err(RecvTimeoutError::Disconnected) => Err("could not be read".into()),
    };
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if said.is_ok() && Instant::now() < deadline => std::thread::sleep(NAP),
            _ => {
                let _ = child.kill();
                // A killed process that hangs in the driver ends only when its driver call returns. A thread reaps it,
                // so that this function does not wait.
                std::thread::spawn(move || child.wait());
                break None;
            }
        }
    };
    let text = said?;
    serde_json::from_slice(&text).map_err(|error| match ended {
        Some(status) if !status.success() => format!("ended ({status})"),
        _ => format!("says what makes no sense: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ComputeMode, DeviceProcess};

    fn h200() -> Device {
        Device {
            number: 0,
            name: "NVIDIA H200".into(),
            uuid: "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".into(),
            capability: (9, 0),
            memory_bytes: 150_000_000_000,
            pci: "0000:65:00.0".into(),
            mig: false,
            compute_mode: ComputeMode::Shared,
            multiprocessors: 132,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6144,
            link_gbytes_per_s: None,
            free_bytes: None,
            holders: Vec::new(),
        }
    }

    fn report(devices: Result<Vec<Device>, NoCuda>) -> ProbeReport {
        ProbeReport { driver: Some("580.95.05".into()), cuda: Some("13.0".into()), devices, libraries: Vec::new() }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_device_that_cannot_be_used_says_why() {
        let holders = vec![DeviceProcess { pid: 7, name: "python".into(), bytes: None }];
        for (device, why) in [
            (h200(), None),
            (Device { capability: (7, 0), ..h200() }, Some("is too old: NVIDIA H200 has compute capability 7.0")),
            (Device { compute_mode: ComputeMode::Prohibited, ..h200() }, Some("compute mode is Prohibited")),
            (Device { compute_mode: ComputeMode::Exclusive, ..h200() }, None),
            (Device { compute_mode: ComputeMode::Exclusive, holders, ..h200() }, Some("in use by python 7")),
        ] {
            match (device.trouble(), why) {
                (found, None) => assert_eq!(found, None),
                (found, Some(why)) => assert!(found.as_ref().is_some_and(|found| found.contains(why)), "{found:?}"),
            }
        }
    }

    #[test]
    fn a_driver_that_is_too_old_or_gone_says_what_to_install_or_look_at() {
        for (error, sentence) in [
            (
                NoCuda::DriverTooOld { found: "11.8".into() },
                "NVIDIA's driver is too old: it is for CUDA 11.8, and 12.0 is needed: install driver 525 or newer, best 580",
            ),
            (
                NoCuda::Failed { what: "cuInit".into(), why: crate::explain(999, Some("CUDA_ERROR_UNKNOWN"), None) },
                "NVIDIA's driver does not work: cuInit: CUDA_ERROR_UNKNOWN: the driver cannot say why: nvidia-modprobe -u \
                 -c 0, or dmesg, may",
            ),
        ] {
            let report = report(Err(error));
            assert_eq!((report.trouble().as_deref(), report.usable().count()), (Some(sentence), 0));
        }
    }

    #[test]
    fn rates_are_near_what_devices_are_known_to_do() {
        let (gflops, gbytes) = h200().rates();
        assert!((50_000.0..67_000.0).contains(&gflops), "{gflops}");
        assert!((3_900.0..4_900.0).contains(&gbytes), "{gbytes}");
        let slice = Device { memory_clock_khz: 0, clock_khz: 0, ..h200() };
        assert!(slice.rates() > (0.0, 0.0));
    }

    #[test]
    fn a_library_that_all_devices_need_keeps_all_from_being_used() {
        let found = |needed, path| LibraryFound { name: "NVRTC".into(), needed, path };
        let with = |libraries| ProbeReport { libraries, ..report(Ok(vec![h200()])) };
        assert_eq!(with(vec![found(false, Err("no".into()))]).usable().count(), 1);
        let without = with(vec![found(true, Err("NVRTC was not found".into()))]);
        assert_eq!((without.usable().count(), without.trouble().unwrap()), (0, "NVRTC was not found".into()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri starts no processes")]
    fn the_process_that_asks_may_die_hang_or_say_nonsense() {
        let limit = Duration::from_secs(20);
        let whole = report(Ok(vec![h200()]));
        let json = serde_json::to_string(&whole).unwrap();
        assert_eq!(probe_apart(&mut shell(&format!("echo '{json}'")), limit), whole);
        for (script, limit, why) in [
            ("kill -SEGV $$", limit, "signal: 11"),
            ("exit 3", limit, "exit status: 3"),
            ("echo hello", limit, "makes no sense"),
            ("exec sleep 1000", Duration::from_millis(50), "did not answer within 50ms"),
        ] {
            let error = probe_apart(&mut shell(script), limit).devices.unwrap_err().to_string();
            assert!(error.contains(why), "{script}: {error}");
        }
        let error = probe_apart(&mut Command::new("/nowhere/gtd"), limit).devices.unwrap_err().to_string();
        assert!(error.contains("could not be started"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri opens no libraries")]
    fn a_machine_without_a_driver_says_what_to_install() {
        if is_there() {
            return;
        }
        let report = probe();
        let why = report.trouble().unwrap();
        assert!(why.contains("NVIDIA's driver library") && why.contains("install NVIDIA's driver"), "{why}");
        assert_eq!(report.usable().count(), 0);
    }
}
