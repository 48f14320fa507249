//! The daemon's configuration file, `/etc/gt/gtd.yaml`.
//!
//! `gtd` reads it to serve, `gtctl` to check and document it. This crate must not know what the daemon does with a
//! setting. Start reading at [`Settings`], the settings of a file, and [`read`]. [`yaml`] reads files by tables of keys
//! and reports errors with their place, [`values`] are the types of values.

pub mod settings;
pub mod values;
pub mod yaml;

pub use settings::{Settings, about, parse, read};
pub use values::{
    Bytes, DeviceChoice, Level, WorkerKind, WorkerKinds, device, device_help, listen_address, metrics_address,
    workers_default, workers_help,
};
pub use yaml::{About, ConfigError};

/// The configuration file of the system's daemon.
pub const SYSTEM_FILE: &str = "/etc/gt/gtd.yaml";
