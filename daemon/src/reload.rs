//! The configuration, read again while the daemon runs.
//!
//! A thread reads it: the file may be slow, and so may whoever knows the users' names; the dispatcher has no time for
//! either.

use crate::config::Config;
use crate::journal::Volume;
use crate::quota::QuotaConfig;
use gt_config::Settings;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

type Read = Result<Settings, String>;

/// The limits that a file asks for.
pub fn limits(file: &Settings) -> QuotaConfig {
    QuotaConfig { default: file.limits, users: file.users.clone() }
}

/// What came of a reading.
pub struct Outcome {
    /// The limits to put in force, the names of what changed, and of what will only after a new start; or what is wrong
    /// with the file, and then nothing has changed.
    pub result: Result<(QuotaConfig, Vec<String>, Vec<String>), String>,
    /// The connections that wait to hear of it.
    pub askers: Vec<u64>,
}

/// Reads the configuration again when it is asked to.
pub struct Reload {
    path: PathBuf,
    /// The command line alone, and with what the file said at the start.
    arguments: Config,
    running: Config,
    /// What the file said the last time that it was good.
    file: Settings,
    volume: Volume,
    bell: Arc<EventFd>,
    results: (Sender<Read>, Receiver<Read>),
    /// Those who wait for the reading that is under way, if one is, and those who came later.
    askers: Option<Vec<u64>>,
    next: Option<Vec<u64>>,
}

impl Reload {
    /// For the file at `path`, which said `file` at the start.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new(path: PathBuf, arguments: Config, file: Settings, volume: Volume) -> std::io::Result<Reload> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let running = arguments.clone().or(&file);
        let results = channel();
        let (askers, next) = (None, None);
        Ok(Reload { path, arguments, running, file, volume, bell: Arc::new(bell), results, askers, next })
    }

    /// Becomes readable when [`Reload::outcome`] has something.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read; `asker` hears of it.
    pub fn begin(&mut self, asker: Option<u64>) {
        if self.askers.is_some() {
            // What is being read may be older than what is asked for.
            return self.next.get_or_insert_default().extend(asker);
        }
        self.askers = Some(asker.into_iter().collect());
        let (path, bell, sender) = (self.path.clone(), self.bell.clone(), self.results.0.clone());
        let read = move || {
            let _ = sender.send(gt_config::read(&path).map_err(|error| error.to_string()));
            let _ = bell.write(1);
        };
        if let Err(error) = std::thread::Builder::new().name("gt-reload".into()).spawn(read) {
            let _ = self.results.0.send(Err(format!("no thread to read it with: {error}")));
            let _ = self.bell.write(1);
        }
    }

    /// What came of a reading that has ended.
    pub fn outcome(&mut self) -> Option<Outcome> {
        let _ = self.bell.read();
        let read = self.results.1.try_recv().ok()?;
        let askers = self.askers.take().unwrap_or_default();
        let result = read.map(|file| self.apply(file));
        if let Some(next) = self.next.take() {
            self.begin(None);
            self.askers = Some(next);
        }
        Some(Outcome { result, askers })
    }

    fn apply(&mut self, file: Settings) -> (QuotaConfig, Vec<String>, Vec<String>) {
        let wanted = self.arguments.clone().or(&file);
        let before = self.arguments.clone().or(&self.file);
        let differ = [
            ("log", wanted.log != before.log),
            ("limits", file.limits != self.file.limits),
            ("users", file.users != self.file.users),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.into()).collect();
        self.volume.set(wanted.log);
        let later = self.running.fixed_differences(&wanted);
        let limits = limits(&file);
        self.file = file;
        (limits, changed, later)
    }
}
