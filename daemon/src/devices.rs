//! Which devices get a worker: what is asked for, and what the machine has.
//!
//! The daemon's own process never uses CUDA: a process of this program asks the driver, once, and only where there is
//! one. Where nothing of NVIDIA's is there, that costs a look at four files.

use gt_config::WorkerKind;
use gt_nvidia::{Device, Report};
use gt_ops::Workers;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// How long the driver may take: less than a client waits for its private daemon.
const PROBE_LIMIT: Duration = Duration::from_secs(8);

/// Prints what the driver says of the devices, as JSON.
///
/// # Errors
/// If nobody reads it.
pub fn describe() -> std::io::Result<()> {
    let report = gt_nvidia::probe();
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)
}

/// What a process of `program` finds, which is `gtd`.
pub fn probe(program: &str) -> Report {
    gt_nvidia::probe_apart(Command::new(program).arg("probe"), PROBE_LIMIT)
}

/// The kind of each worker to run: `asked`, or if nothing is, one on each NVIDIA device, or on the processor where
/// there is none. `wanted` is how many a program needs at least, which says nothing of what they compute on. `probe`
/// is asked only where it matters.
///
/// # Errors
/// What was asked for and is not there.
pub fn resolve(
    asked: Option<&[WorkerKind]>,
    wanted: usize,
    there: bool,
    probe: impl FnOnce() -> Report,
) -> Result<Vec<WorkerKind>, String> {
    let Some(asked) = asked else {
        let on_processor = vec![WorkerKind::Cpu; wanted.max(1)];
        return Ok(if there { unasked(&probe(), wanted).unwrap_or(on_processor) } else { on_processor });
    };
    if asked.contains(&WorkerKind::EmulatedCuda) && !cfg!(feature = "emulated") {
        return Err(
            "emulated-cuda is for tests of the CUDA backend, and this gtd was built without it: build one with \
                    cargo build --package gtd --features emulated"
                .into(),
        );
    }
    if !asked.iter().any(|kind| matches!(kind, WorkerKind::Cuda(_) | WorkerKind::EachCuda)) {
        return Ok(asked.to_vec());
    }
    let report = probe();
    if let Some(trouble) = report.trouble() {
        return Err(format!("a GPU is asked for: {trouble}"));
    }
    let devices = report.devices.as_deref().unwrap_or_default();
    let mut kinds = Vec::new();
    for kind in asked {
        match kind {
            WorkerKind::Cuda(number) => {
                kinds.push(*kind);
                let device = devices.iter().find(|device| device.number == *number).ok_or_else(|| {
                    let known: Vec<String> = devices.iter().map(name).collect();
                    format!("{kind} is asked for, but this process sees {}", known.join(", "))
                })?;
                device.trouble().map_or(Ok(()), Err)?;
            }
            WorkerKind::EachCuda => {
                let before = kinds.len();
                kinds.extend(report.usable().map(|device| WorkerKind::Cuda(device.number)));
                if kinds.len() == before {
                    let troubles: Vec<String> = devices.iter().filter_map(Device::trouble).collect();
                    return Err(format!("a GPU is asked for: {}", troubles.join("; ")));
                }
            }
            kind => kinds.push(*kind),
        }
    }
    Ok(kinds)
}

/// The workers that are devices, if they reach each other past the host: how many gigabytes a second.
pub fn reach(kinds: &[WorkerKind], report: &Report) -> Option<(Workers, f64)> {
    let device = |kind: &WorkerKind| if let WorkerKind::Cuda(number) = kind { Some(*number) } else { None };
    let numbers: Vec<u32> = kinds.iter().filter_map(device).collect();
    let of = |(worker, kind)| device(kind).map(|_| Workers::one(worker));
    let workers = kinds.iter().enumerate().filter_map(of).fold(Workers::NONE, Workers::with);
    report.link_gbytes_per_s(&numbers).map(|gbytes_per_s| (workers, gbytes_per_s))
}

/// All devices that can be used, if they are enough. A machine whose devices cannot be used has been told why.
fn unasked(report: &Report, wanted: usize) -> Option<Vec<WorkerKind>> {
    let kinds: Vec<WorkerKind> = report.usable().map(|device| WorkerKind::Cuda(device.number)).collect();
    let devices = report.devices.as_deref().unwrap_or_default();
    let troubles = report.trouble().into_iter().chain(devices.iter().filter_map(Device::trouble));
    for trouble in troubles {
        tracing::warn!(target: "gtd::dispatcher", "{trouble}. GT_DEVICES=cpu does without GPUs");
    }
    (!kinds.is_empty() && kinds.len() >= wanted).then_some(kinds)
}

fn name(device: &Device) -> String {
    format!("cuda:{} ({})", device.number, device.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use WorkerKind::{Cpu, Cuda, EachCuda, EmulatedCuda, ProcCpu};
    use gt_nvidia::{ComputeMode, NoCuda};

    fn device(number: u32) -> Device {
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
            link_gbytes_per_s: None,
            free_bytes: None,
            holders: Vec::new(),
        }
    }

    fn report(devices: Result<Vec<Device>, NoCuda>) -> Report {
        Report { driver: None, cuda: None, devices, libraries: Vec::new() }
    }

    fn unasked_on(devices: Result<Vec<Device>, NoCuda>, wanted: usize) -> Vec<WorkerKind> {
        resolve(None, wanted, true, || report(devices)).unwrap()
    }

    #[test]
    fn nobody_is_asked_where_nothing_of_nvidias_is_there() {
        let never = || panic!("asked");
        assert_eq!(resolve(None, 0, false, never), Ok(vec![Cpu]));
        assert_eq!(resolve(None, 3, false, never), Ok(vec![Cpu; 3]));
        assert_eq!(resolve(Some(&[Cpu, ProcCpu]), 0, true, never), Ok(vec![Cpu, ProcCpu]));
        let emulated = resolve(Some(&[EmulatedCuda]), 0, true, never);
        if cfg!(feature = "emulated") {
            assert_eq!(emulated, Ok(vec![EmulatedCuda]));
        } else {
            assert!(emulated.unwrap_err().contains("was built without it"));
        }
    }

    #[test]
    fn without_being_asked_all_devices_that_can_be_used_are() {
        let old = Device { capability: (6, 1), ..device(1) };
        assert_eq!(unasked_on(Ok(vec![device(0), old.clone(), device(2)]), 0), [Cuda(0), Cuda(2)]);
        assert_eq!(unasked_on(Ok(vec![old]), 0), [Cpu]);
        assert_eq!(unasked_on(Err(NoCuda::Broken("ended (signal: 11)".into())), 0), [Cpu]);
        // A program that needs more workers than there are devices has them on the processor.
        assert_eq!(unasked_on(Ok(vec![device(0), device(1)]), 2), [Cuda(0), Cuda(1)]);
        assert_eq!(unasked_on(Ok(vec![device(0), device(1)]), 3), [Cpu; 3]);
    }

    #[test]
    fn what_is_asked_for_and_not_there_is_an_error_that_says_why() {
        let two = || report(Ok(vec![device(0), Device { compute_mode: ComputeMode::Prohibited, ..device(1) }]));
        assert_eq!(resolve(Some(&[EachCuda, Cpu]), 0, true, two), Ok(vec![Cuda(0), Cpu]));
        assert_eq!(resolve(Some(&[Cuda(0)]), 0, true, two), Ok(vec![Cuda(0)]));
        let none = || report(Err(NoCuda::NoDriver("NVIDIA's driver library was not found".into())));
        for (asked, probe, why) in [
            (Cuda(1), &two as &dyn Fn() -> Report, "cuda:1 may not be used: its compute mode is Prohibited"),
            (Cuda(2), &two, "cuda:2 is asked for, but this process sees cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)"),
            (EachCuda, &none, "a GPU is asked for: NVIDIA's driver library was not found"),
        ] {
            let error = resolve(Some(&[asked]), 0, false, probe).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
