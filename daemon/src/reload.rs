//! Reloads of the configuration while the daemon runs.
//!
//! A thread reads the file, since the file system and the look-up of users' names may be slow.

use crate::config::Config;
use crate::journal::LogLevel;
use crate::quota::QuotaConfig;
use gt_bridge::tls::{Certificate, ServedCertificate};
use gt_config::Settings;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

/// The contents of the file, and the certificate in the files that the running configuration names.
type Read = Result<(Settings, Option<Certificate>), String>;

/// The quotas in a configuration.
pub fn quotas(file: &Settings) -> QuotaConfig {
    QuotaConfig { default: file.limits, groups: file.groups.clone(), users: file.users.clone() }
}

/// The changes of a reload.
pub struct ReloadedConfig {
    /// The new quotas.
    pub quotas: QuotaConfig,
    /// The fingerprint of the certificate for TLS, if that is another one.
    pub fingerprint: Option<String>,
    /// The names of changed settings.
    pub changed: Vec<String>,
    /// The names of settings that change only when the daemon is started again.
    pub restart: Vec<String>,
}

/// The outcome of a reload.
pub struct ReloadOutcome {
    /// The changes; or the error in the file or the certificate, and then there are none.
    pub result: Result<ReloadedConfig, String>,
    /// The connections that wait for the outcome.
    pub waiting: Vec<u64>,
}

/// Logs a warning if the certificate has expired, or expires soon.
pub fn warn_of_expiry(certificate: &Certificate) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if let Some(warning) = certificate.expiry_warning(now) {
        tracing::warn!(target: "gtd::tcp", "{warning}");
    }
}

/// The reloader of the configuration.
pub struct Reload {
    path: PathBuf,
    /// The command line alone; `running` is the command line completed by the file as it was at the start.
    arguments: Config,
    running: Config,
    /// The last valid contents of the file.
    file: Settings,
    /// The number of the daemon's devices, which quotas name.
    devices: usize,
    log_level: LogLevel,
    /// The certificate that clients by TCP are shown.
    certificate: Option<Arc<ServedCertificate>>,
    bell: Arc<EventFd>,
    results: (Sender<Read>, Receiver<Read>),
    /// The connections that wait for the present read, if there is one, and those that wait for the next.
    waiting: Option<Vec<u64>>,
    next: Option<Vec<u64>>,
}

impl Reload {
    /// The reloader of the file at `path`, whose contents at the start were `file`, for a daemon with this number of
    /// devices that shows `certificate`.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(
        path: PathBuf,
        arguments: Config,
        file: Settings,
        devices: usize,
        log_level: LogLevel,
        certificate: Option<Arc<ServedCertificate>>,
    ) -> std::io::Result<Reload> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let running = arguments.clone().or(&file);
        let results = channel();
        let (waiting, next) = (None, None);
        let bell = Arc::new(bell);
        Ok(Reload { path, arguments, running, file, devices, log_level, certificate, bell, results, waiting, next })
    }

    /// A descriptor that becomes readable when [`Reload::outcome`] has an outcome.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The configuration file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read the file; connection `asker` waits for the outcome.
    pub fn begin(&mut self, asker: Option<u64>) {
        if self.waiting.is_some() {
            // The present read may have begun before the file was changed, so another follows it.
            return self.next.get_or_insert_default().extend(asker);
        }
        self.waiting = Some(asker.into_iter().collect());
        let (path, bell, sender) = (self.path.clone(), self.bell.clone(), self.results.0.clone());
        let devices = self.devices;
        let serves_tls = self.certificate.is_some();
        let [certificate, key] =
            [&self.running.tls_certificate, &self.running.tls_key].map(|file| file.clone().filter(|_| serves_tls));
        let read = move || {
            let checked = |file: Settings| file.check_devices(&path, devices).map(|()| file);
            let file = gt_config::read(&path).and_then(checked).map_err(|error| error.to_string());
            let with_certificate = |file| {
                let certificate = Certificate::named(certificate.as_deref(), key.as_deref());
                certificate.map(|certificate| (file, certificate)).map_err(|error| error.to_string())
            };
            let _ = sender.send(file.and_then(with_certificate));
            let _ = bell.write(1);
        };
        if let Err(error) = std::thread::Builder::new().name("gt-reload".into()).spawn(read) {
            let _ = self.results.0.send(Err(format!("no thread to read it with: {error}")));
            let _ = self.bell.write(1);
        }
    }

    /// The outcome of a read that has ended.
    pub fn outcome(&mut self) -> Option<ReloadOutcome> {
        let _ = self.bell.read();
        let read = self.results.1.try_recv().ok()?;
        let waiting = self.waiting.take().unwrap_or_default();
        let result = read.map(|(file, certificate)| self.apply(file, certificate));
        if let Some(next) = self.next.take() {
            self.begin(None);
            self.waiting = Some(next);
        }
        Some(ReloadOutcome { result, waiting })
    }

    fn apply(&mut self, file: Settings, certificate: Option<Certificate>) -> ReloadedConfig {
        let wanted = self.arguments.clone().or(&file);
        let before = self.arguments.clone().or(&self.file);
        let fingerprint = certificate.and_then(|certificate| self.show(certificate));
        let differ = [
            ("tls_certificate", fingerprint.is_some()),
            ("log", wanted.log != before.log),
            ("limits", file.limits != self.file.limits),
            ("groups", file.groups != self.file.groups),
            ("users", file.users != self.file.users),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.into()).collect();
        self.log_level.set(wanted.log);
        let restart = self.running.fixed_differences(&wanted);
        let quotas = quotas(&file);
        self.file = file;
        ReloadedConfig { quotas, fingerprint, changed, restart }
    }

    /// Shows `certificate` to clients that connect from now on. Its fingerprint, if it is another one than before.
    fn show(&self, certificate: Certificate) -> Option<String> {
        let served = self.certificate.as_ref()?;
        warn_of_expiry(&certificate);
        let fingerprint = certificate.fingerprint();
        let is_new = fingerprint != served.fingerprint();
        served.replace(certificate);
        is_new.then(|| fingerprint.to_string())
    }
}
