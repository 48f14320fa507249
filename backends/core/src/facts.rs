//! The facts of a backend that the daemon, its configuration and `gtctl doctor` need.

use crate::doctor::{DoctorContext, Finding};
use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// Constants and discovery of one backend; see [`crate::BackendFactory`].
#[derive(Debug)]
pub struct BackendFacts {
    /// The name in `--workers NAME:N`, also the `kind` that `gtctl status` shows.
    pub name: &'static str,
    /// The first part of its workers' names, as `cpu` in `cpu:0`. A whole name has at most 16 characters.
    pub worker_prefix: &'static str,
    /// Where it computes.
    pub site: Site,
    /// The clause that explains its workers in help texts; empty for a test backend, which help texts leave out.
    pub help: &'static str,
    /// Why this program cannot use the backend, and what to do about that; `None` if it can.
    pub unavailable: Option<&'static str>,
    /// How long a worker's process may take to become ready.
    pub ready_deadline: Duration,
    /// Estimates of gigaflops and of gigabytes of memory a second, used until a worker reports its own. The argument is
    /// the number of threads; a [`Site::Device`] backend ignores it.
    pub rates: fn(u32) -> (f64, f64),
    /// How its devices are found, for a backend that looks for them when it is asked for.
    pub discovery: Option<Discovery>,
    /// Whether users select its devices by number: `NAME:0,2`. Otherwise a number is a count of workers: `NAME:4`.
    /// Devices that are found have numbers.
    pub is_numbered: bool,
}

impl PartialEq for BackendFacts {
    /// Names are unique in the registry.
    fn eq(&self, other: &BackendFacts) -> bool {
        self.name == other.name
    }
}
impl Eq for BackendFacts {}

/// Where a backend computes and keeps its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// On the processor, with threads and memory of the host: a worker `NAME` is a thread of the daemon, `proc-NAME` a
    /// process.
    Host,
    /// On a device with memory of its own, asynchronously: a worker is a process of its own, since a broken driver may
    /// end the process that uses it.
    Device,
}

/// How the devices of a backend are found at run time.
#[derive(Debug)]
pub struct Discovery {
    /// The noun for a device in error messages, as in "a GPU is asked for".
    pub device: &'static str,
    /// The noun for a device in help texts, as in "where there is an NVIDIA device".
    pub product: &'static str,
    /// Whether a survey is worthwhile. The check looks for a few files and takes microseconds.
    pub is_there: fn() -> bool,
    /// Queries the driver in this process, and prints the report that [`Discovery::survey`] reads.
    pub probe: fn(&mut dyn Write) -> std::io::Result<()>,
    /// Runs a program that calls [`Discovery::probe`], and reads its report; the duration is the time limit. The driver
    /// is used in a separate process because a process cannot undo the driver's initialization, and because a broken
    /// driver may end the process.
    pub survey: fn(&mut Command, Duration) -> DeviceSurvey,
    /// The findings of `gtctl doctor` about devices, driver and libraries.
    pub doctor: fn(&DoctorContext<'_>) -> Vec<Finding>,
}

/// The devices of one backend on this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSurvey {
    /// The devices, usable or not.
    pub devices: Vec<SurveyedDevice>,
    /// Why none of them can be used, as a sentence: no driver, or a library that all need.
    pub trouble: Option<String>,
}

/// A device that a survey found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveyedDevice {
    /// Its number, as in `NAME:0`.
    pub number: u32,
    /// Its product name.
    pub name: String,
    /// Why it cannot be used, as a sentence that says what to do.
    pub trouble: Option<String>,
    /// The rate of transfers between this device and others that bypass the host, in gigabytes a second; `None` if such
    /// transfers are impossible or their rate is unknown.
    pub link_gbytes_per_s: Option<f64>,
}

impl DeviceSurvey {
    /// The numbers of the devices that can be used.
    pub fn usable(&self) -> impl Iterator<Item = u32> {
        let devices = if self.trouble.is_none() { self.devices.as_slice() } else { &[] };
        devices.iter().filter(|device| device.trouble.is_none()).map(|device| device.number)
    }

    /// The rate of transfers between these devices, in gigabytes a second, which is the slowest device's rate. `None`
    /// for fewer than two devices, and if one of them has no rate or is named twice.
    pub fn link_gbytes_per_s(&self, numbers: &[u32]) -> Option<f64> {
        let mut slowest = f64::INFINITY;
        for (at, number) in numbers.iter().enumerate() {
            if numbers[..at].contains(number) {
                return None;
            }
            let device = self.devices.iter().find(|device| device.number == *number)?;
            slowest = slowest.min(device.link_gbytes_per_s?);
        }
        (numbers.len() > 1).then_some(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_reach_each_other_as_fast_as_the_slowest_does() {
        let device = |number, link_gbytes_per_s| SurveyedDevice { number, link_gbytes_per_s, ..Default::default() };
        let devices = vec![device(0, Some(450.0)), device(1, Some(50.0)), device(2, None)];
        let survey = DeviceSurvey { devices, trouble: None };
        assert_eq!(survey.link_gbytes_per_s(&[0, 1]), Some(50.0));
        for none in [&[0, 2][..], &[0, 0], &[0, 7], &[0]] {
            assert_eq!(survey.link_gbytes_per_s(none), None, "{none:?}");
        }
    }
}
