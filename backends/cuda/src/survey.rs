//! The survey of the machine's NVIDIA devices.

use gt_backend::{DeviceSurvey, SurveyedDevice};
use gt_nvidia::{Device, NCCL, ProbeReport};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// A driver that takes longer than this starts slowly.
const SLOW: Duration = Duration::from_secs(2);

/// Prints this process's [`ProbeReport`] as JSON.
///
/// # Errors
/// Those of writing it.
pub fn print_report(out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}", serde_json::to_string(&gt_nvidia::probe())?)
}

/// The devices in the report that `program` prints within `limit`.
pub fn survey(program: &mut Command, limit: Duration) -> DeviceSurvey {
    let begun = Instant::now();
    let report = gt_nvidia::probe_apart(program, limit);
    if begun.elapsed() > SLOW {
        let seconds = begun.elapsed().as_secs_f32();
        tracing::warn!(target: "gtd::cuda", seconds, "NVIDIA's driver starts slowly: nvidia-persistenced keeps it ready");
    }
    survey_of(&report)
}

/// The devices of a report. The rate between devices is the one that NVML reports, or unknown without NCCL.
fn survey_of(report: &ProbeReport) -> DeviceSurvey {
    let nccl = report.libraries.iter().any(|library| library.name == NCCL.name && library.path.is_ok());
    let surveyed = |device: &Device| SurveyedDevice {
        number: device.number,
        name: device.name.clone(),
        trouble: device.trouble(),
        link_gbytes_per_s: device.link_gbytes_per_s.filter(|_| nccl),
    };
    let devices = report.devices.iter().flatten().map(surveyed).collect();
    DeviceSurvey { devices, trouble: report.trouble() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_nvidia::{ComputeMode, LibraryFound, NoCuda};

    fn device(number: u32, link_gbytes_per_s: Option<f64>) -> Device {
        Device {
            number,
            name: "NVIDIA H200".into(),
            uuid: format!("GPU-{number}"),
            capability: (9, 0),
            memory_bytes: 150 << 30,
            pci: "0000:65:00.0".into(),
            mig: false,
            compute_mode: ComputeMode::Shared,
            multiprocessors: 132,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6144,
            link_gbytes_per_s,
            free_bytes: None,
            holders: Vec::new(),
        }
    }

    fn report(devices: Result<Vec<Device>, NoCuda>, libraries: Vec<LibraryFound>) -> ProbeReport {
        ProbeReport { driver: None, cuda: None, devices, libraries }
    }

    #[test]
    fn devices_reach_each_other_as_fast_as_the_slowest_does_and_by_nccl_only() {
        let nccl = |path| LibraryFound { name: NCCL.name.into(), needed: false, path };
        let devices = || vec![device(0, Some(450.0)), device(1, Some(50.0)), device(2, None)];
        let with = |path| survey_of(&report(Ok(devices()), vec![nccl(path)]));
        let here = with(Ok("libnccl.so.2".into()));
        assert_eq!(here.link_gbytes_per_s(&[0, 1]), Some(50.0));
        for none in [&[0, 2][..], &[0, 0], &[0, 7], &[0]] {
            assert_eq!(here.link_gbytes_per_s(none), None, "{none:?}");
        }
        assert_eq!(with(Err("no".into())).link_gbytes_per_s(&[0, 1]), None);
    }

    #[test]
    fn devices_that_cannot_be_used_say_why() {
        let old = Device { capability: (6, 1), ..device(1, None) };
        let prohibited = Device { compute_mode: ComputeMode::Prohibited, ..device(2, None) };
        let some = survey_of(&report(Ok(vec![device(0, None), old, prohibited]), Vec::new()));
        assert_eq!(some.usable().collect::<Vec<_>>(), [0]);
        let why = some.devices[2].trouble.as_ref().unwrap();
        assert!(why.contains("cuda:2 may not be used: its compute mode is Prohibited"), "{why}");
        let without = LibraryFound { name: "NVRTC".into(), needed: true, path: Err("NVRTC was not found".into()) };
        let none = survey_of(&report(Ok(vec![device(0, None)]), vec![without]));
        assert_eq!((none.usable().count(), none.trouble.as_deref()), (0, Some("NVRTC was not found")));
        let driver = NoCuda::NoDriver("NVIDIA's driver library was not found".into());
        let none = survey_of(&report(Err(driver), Vec::new()));
        assert_eq!(none.trouble.as_deref(), Some("NVIDIA's driver library was not found"));
    }
}
