//! The workers to run: those that are requested, or one on each device of the machine.
//!
//! The daemon's own process never uses a device's driver: if a backend finds files of a driver, a separate process of
//! this program queries the driver, once. Without such files, the search costs a few file look-ups.

use gt_backend::{BackendFacts, DeviceSurvey, Discovery, SurveyedDevice};
use gt_config::{DeviceChoice, WorkerKind};
use gt_ops::Workers;
use std::process::Command;
use std::time::Duration;

/// The time that the driver may take: less than a client waits for its private daemon.
const SURVEY_LIMIT: Duration = Duration::from_secs(8);

/// Prints what the driver of this backend reports of its devices.
///
/// # Errors
/// A backend that discovers no devices, or a closed standard output.
pub fn probe(backend: &str) -> std::io::Result<()> {
    let discovery = gt_backends::find(backend).and_then(|facts| facts.discovery.as_ref());
    let discovery = discovery.ok_or_else(|| std::io::Error::other(format!("{backend} discovers no devices")))?;
    (discovery.probe)(&mut std::io::stdout())
}

/// The devices of `backend`, found by a separate process of `program`, which is `gtd`.
pub fn survey(program: &str, backend: &BackendFacts) -> DeviceSurvey {
    match &backend.discovery {
        Some(discovery) => (discovery.survey)(Command::new(program).args(["probe", backend.name]), SURVEY_LIMIT),
        None => DeviceSurvey::default(),
    }
}

/// The default name of worker `index`, with the number of its device, or with its index if it has no device number.
pub fn worker_name(kind: WorkerKind, index: usize) -> String {
    let number = if let DeviceChoice::Number(number) = kind.device { number as usize } else { index };
    format!("{}:{number}", kind.backend.worker_prefix)
}

/// The kind of each worker to run. If `asked` is none, these are workers on all usable devices of the first backend
/// that has at least `wanted` of them, else `wanted` workers on the CPU, but at least one. A backend is surveyed only
/// if its devices are requested, or if nothing is requested and `is_there` finds signs of devices.
///
/// # Errors
/// A device that is requested and cannot be used, as a sentence.
pub fn resolve(
    asked: Option<&[WorkerKind]>,
    wanted: usize,
    is_there: impl Fn(&Discovery) -> bool,
    mut survey: impl FnMut(&'static BackendFacts) -> DeviceSurvey,
) -> Result<Vec<WorkerKind>, String> {
    let Some(asked) = asked else {
        for &backend in gt_backends::BACKENDS {
            let there = backend.discovery.as_ref().is_some_and(&is_there);
            if let Some(kinds) = there.then(|| unasked(backend, &survey(backend), wanted)).flatten() {
                return Ok(kinds);
            }
        }
        return Ok(vec![WorkerKind::on(gt_backends::host(), 0); wanted.max(1)]);
    };
    if let Some(why) = asked.iter().find_map(|kind| kind.backend.unavailable) {
        return Err(why.into());
    }
    let mut surveys: Vec<(&BackendFacts, DeviceSurvey)> = Vec::new();
    let mut kinds = Vec::new();
    for kind in asked {
        let Some(discovery) = &kind.backend.discovery else {
            kinds.push(*kind);
            continue;
        };
        if !surveys.iter().any(|(backend, _)| *backend == kind.backend) {
            surveys.push((kind.backend, survey(kind.backend)));
        }
        let Some((_, survey)) = surveys.iter().find(|(backend, _)| *backend == kind.backend) else { continue };
        kinds.extend(discovered(kind, discovery, survey)?);
    }
    Ok(kinds)
}

/// A worker on each device that `kind` names.
fn discovered(kind: &WorkerKind, discovery: &Discovery, survey: &DeviceSurvey) -> Result<Vec<WorkerKind>, String> {
    let asked_for = discovery.device;
    if let Some(trouble) = &survey.trouble {
        return Err(format!("{asked_for} is asked for: {trouble}"));
    }
    if let DeviceChoice::Number(number) = kind.device {
        let found = survey.devices.iter().find(|device| device.number == number);
        let device = found.ok_or_else(|| {
            let name = |device: &SurveyedDevice| format!("{}:{} ({})", kind.backend.name, device.number, device.name);
            let known: Vec<String> = survey.devices.iter().map(name).collect();
            format!("{kind} is asked for, but this process sees {}", known.join(", "))
        })?;
        return device.trouble.clone().map_or(Ok(vec![*kind]), Err);
    }
    let kinds: Vec<WorkerKind> = survey.usable().map(|number| WorkerKind::on(kind.backend, number)).collect();
    if kinds.is_empty() {
        let troubles: Vec<String> = survey.devices.iter().filter_map(|device| device.trouble.clone()).collect();
        return Err(format!("{asked_for} is asked for: {}", troubles.join("; ")));
    }
    Ok(kinds)
}

/// The first of the requested kinds of workers that uses a device.
pub fn kept_device(asked: Option<&[WorkerKind]>) -> Option<WorkerKind> {
    asked?.iter().copied().find(|kind| kind.backend.is_numbered)
}

/// The workers whose devices reach each other directly, and the bandwidth of the slowest link, gigabytes a second.
pub fn reach(kinds: &[WorkerKind], surveys: &[(&'static BackendFacts, DeviceSurvey)]) -> Option<(Workers, f64)> {
    surveys.iter().find_map(|(backend, survey)| {
        let number = |kind: &WorkerKind| match kind.device {
            DeviceChoice::Number(number) if kind.backend == *backend => Some(number),
            _ => None,
        };
        let numbers: Vec<u32> = kinds.iter().filter_map(number).collect();
        let of = |(worker, kind)| number(kind).map(|_| Workers::one(worker));
        let workers = kinds.iter().enumerate().filter_map(of).fold(Workers::NONE, Workers::with);
        survey.link_gbytes_per_s(&numbers).map(|gbytes_per_s| (workers, gbytes_per_s))
    })
}

/// A worker on each usable device of `backend`, if these are at least `wanted`. Logs why others cannot be used.
fn unasked(backend: &'static BackendFacts, survey: &DeviceSurvey, wanted: usize) -> Option<Vec<WorkerKind>> {
    let kinds: Vec<WorkerKind> = survey.usable().map(|number| WorkerKind::on(backend, number)).collect();
    let troubles = survey.devices.iter().filter_map(|device| device.trouble.as_ref());
    for trouble in survey.trouble.iter().chain(troubles) {
        tracing::warn!(target: "gtd::dispatcher", "{trouble}. GT_DEVICES=cpu does without GPUs");
    }
    (!kinds.is_empty() && kinds.len() >= wanted).then_some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> WorkerKind {
        text.parse::<gt_config::WorkerKinds>().unwrap().0[0]
    }

    /// A worker on each of these devices of the CUDA backend.
    fn on(numbers: &[u32]) -> Vec<WorkerKind> {
        let backend = one("cuda").backend;
        numbers.iter().map(|number| WorkerKind::on(backend, *number)).collect()
    }

    fn device(number: u32) -> SurveyedDevice {
        SurveyedDevice { number, name: "NVIDIA H200".into(), trouble: None, link_gbytes_per_s: None }
    }

    fn unusable(number: u32, why: &str) -> SurveyedDevice {
        SurveyedDevice { trouble: Some(format!("cuda:{number} {why}")), ..device(number) }
    }

    fn with(devices: Vec<SurveyedDevice>) -> DeviceSurvey {
        DeviceSurvey { devices, trouble: None }
    }

    fn without(trouble: &str) -> DeviceSurvey {
        DeviceSurvey { devices: Vec::new(), trouble: Some(trouble.into()) }
    }

    fn unasked_on(survey: DeviceSurvey, wanted: usize) -> Vec<WorkerKind> {
        resolve(None, wanted, |_| true, |_| survey.clone()).unwrap()
    }

    #[test]
    fn no_driver_is_queried_without_signs_of_devices() {
        let never = |_| panic!("asked");
        let (cpu, proc_cpu, emulated_cuda) = (one("cpu"), one("proc-cpu"), one("emulated-cuda"));
        assert_eq!(resolve(None, 0, |_| false, never), Ok(vec![cpu]));
        assert_eq!(resolve(None, 3, |_| false, never), Ok(vec![cpu; 3]));
        assert_eq!(resolve(Some(&[cpu, proc_cpu]), 0, |_| true, never), Ok(vec![cpu, proc_cpu]));
        let emulated = resolve(Some(&[emulated_cuda]), 0, |_| true, never);
        if emulated_cuda.backend.unavailable.is_none() {
            assert_eq!(emulated, Ok(vec![emulated_cuda]));
        } else {
            assert!(emulated.unwrap_err().contains("was built without it"));
        }
    }

    #[test]
    fn all_usable_devices_are_used_by_default() {
        let (cpu, old) = (one("cpu"), unusable(1, "is too old"));
        assert_eq!(unasked_on(with(vec![device(0), old.clone(), device(2)]), 0), on(&[0, 2]));
        assert_eq!(unasked_on(with(vec![old]), 0), [cpu]);
        assert_eq!(unasked_on(without("NVIDIA's driver does not work"), 0), [cpu]);
        // A program that needs more workers than there are devices gets them on the CPU.
        assert_eq!(unasked_on(with(vec![device(0), device(1)]), 2), on(&[0, 1]));
        assert_eq!(unasked_on(with(vec![device(0), device(1)]), 3), [cpu; 3]);
    }

    #[test]
    fn a_requested_device_that_is_missing_is_an_error_with_its_reason() {
        let two = |_| with(vec![device(0), unusable(1, "may not be used: its compute mode is Prohibited")]);
        let (cpu, each) = (one("cpu"), one("cuda"));
        assert_eq!(resolve(Some(&[each, cpu]), 0, |_| true, two), Ok(vec![on(&[0])[0], cpu]));
        assert_eq!(resolve(Some(&on(&[0])), 0, |_| true, two), Ok(on(&[0])));
        let none = |_| without("NVIDIA's driver library was not found");
        for (asked, survey, why) in [
            (
                one("cuda:1"),
                &two as &dyn Fn(&'static BackendFacts) -> DeviceSurvey,
                "cuda:1 may not be used: its compute mode is Prohibited",
            ),
            (
                one("cuda:2"),
                &two,
                "cuda:2 is asked for, but this process sees cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)",
            ),
            (each, &none, "a GPU is asked for: NVIDIA's driver library was not found"),
        ] {
            let error = resolve(Some(&[asked]), 0, |_| false, survey).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
