//! What an administrator writes for the daemon: the file `/etc/gt/gtd.yaml`.
//!
//! `gtd` reads it to serve, `gtctl` to say what is wrong with it before it does. This crate must not know what the
//! daemon does with what is written. Start at [`Settings`], which is what a file may say, and [`read`]; [`yaml`] knows
//! how values are found in a file and said to be wrong, [`values`] what they look like.

pub mod settings;
pub mod values;
pub mod yaml;

pub use settings::{Settings, about, parse, read};
pub use values::{
    Bytes, DeviceChoice, Level, WorkerKind, WorkerKinds, device, device_help, listen_address, workers_default,
    workers_help,
};
pub use yaml::{About, ConfigError};

/// The file of the machine's daemon.
pub const SYSTEM_FILE: &str = "/etc/gt/gtd.yaml";
