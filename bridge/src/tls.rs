//! TLS 1.3: the daemon's certificate, and how a client knows the daemon by it.
//!
//! A daemon makes a certificate of its own when it first listens by TCP. Nobody signs it: a client that is to connect
//! names its fingerprint in the address, as `ssh` knows a host by its key. A daemon whose configuration names a
//! certificate of an authority uses that one, and clients whose machine trusts the authority need no fingerprint.

use crate::token::random_hex;
use gt_protocol::address::Fingerprint;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert, WantsServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, DistinguishedName, InconsistentKeys,
    RootCertStore, ServerConfig, SignatureScheme,
};
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The file of the certificate that a daemon makes for itself, with its key.
pub const OWN_FILE: &str = "tls.pem";
/// The name in a certificate that a daemon makes for itself. Nobody checks it.
const OWN_NAME: &str = "gtd";
/// The environment variable that names the file of trusted authorities, as OpenSSL and curl read it.
pub const AUTHORITIES_ENV: &str = "SSL_CERT_FILE";
/// The files of trusted authorities of Debian, Fedora, and others. The first that exists is used.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The most bytes of a file with certificates: that of all authorities has some 250,000.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The mode bits that let every user read or change a file.
const EVERY_USER: u32 = 0o006;
/// The mode bits that let users other than the owner read or write a file.
const OTHERS: u32 = 0o066;
/// The time before the end of a certificate in which warnings say so.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
/// A time after the end of every certificate: the end of the year 9999, seconds since 1970.
const LATE_S: u64 = 253_402_300_799;

/// An unusable certificate, key or list of authorities.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read or written.
    #[error("the {what} {path}: {source}")]
    File {
        /// The purpose of the file.
        what: &'static str,
        /// Its path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file without what is needed from it.
    #[error("{path} holds no {what} in the format PEM (-----BEGIN …-----){detail}")]
    Empty {
        /// The kind of item that is missing.
        what: &'static str,
        /// The file's path.
        path: String,
        /// The reason, with a colon before it.
        detail: String,
    },
    /// A key that other users may read or replace.
    #[error(
        "the key {path} may be read or changed by others (mode {mode:o}): chmod {chmod} {path}, and make a new key"
    )]
    Open {
        /// The file's path.
        path: String,
        /// Its mode.
        mode: u32,
        /// The mode that it should have.
        chmod: &'static str,
    },
    /// A certificate without its key, or the other way round.
    #[error("{named} is set, and {missing} is not: set both, or neither for a certificate that the daemon makes")]
    Half {
        /// The key of the configuration that is set.
        named: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// A key of another certificate.
    #[error("the key {key} is not that of the certificate {certificate}: name the two that were made together")]
    Mismatch {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
    },
    /// A certificate or key that the library refuses.
    #[error("the certificate {path} cannot be used: {source}")]
    Unusable {
        /// The certificate's file.
        path: String,
        /// The library's error.
        source: rustls::Error,
    },
    /// A new certificate could not be made.
    #[error("no certificate could be made: {0}")]
    Made(#[from] rcgen::Error),
    /// A client's machine has no list of authorities.
    #[error(
        "this machine has no list of trusted certificate authorities: write the fingerprint of the daemon's certificate, \
         which gtctl status prints there, after the address, as in tls://box:12345#sha256:…"
    )]
    NoAuthorities,
}

/// A certificate and its key, with which a daemon shows clients who it is.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
    valid_until_s: Option<u64>,
}

impl Certificate {
    /// The certificate that a configuration names, if it names one: the files of the certificate and of its key.
    ///
    /// # Errors
    /// One file without the other, or the errors of [`read`](Certificate::read).
    pub fn named(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Certificate>, TlsError> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Certificate::read(certificate, key).map(Some),
            (None, None) => Ok(None),
            (Some(_), None) => Err(TlsError::Half { named: "tls_certificate", missing: "tls_key" }),
            (None, Some(_)) => Err(TlsError::Half { named: "tls_key", missing: "tls_certificate" }),
        }
    }

    /// The certificate in the file `certificate`, followed there by those that sign it, and its key in the file `key`.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else; a key that every user may read, or of another certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<Certificate, TlsError> {
        Certificate::load(certificate, key, EVERY_USER, "640")
    }

    /// The certificate that the daemon has made for itself in `folder`; made if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or written, that others may read, or that holds something else.
    pub fn own(folder: &Path) -> Result<Certificate, TlsError> {
        let path = folder.join(OWN_FILE);
        if !path.exists() {
            make(folder, &path)?;
        }
        Certificate::load(&path, &path, OTHERS, "600")
    }

    fn load(certificate: &Path, key: &Path, closed: u32, chmod: &'static str) -> Result<Certificate, TlsError> {
        let (name, key_name) = (certificate.display().to_string(), key.display().to_string());
        let (chain, _) = read(certificate, "certificate")?;
        let (pem, mode) = read(key, "key")?;
        if mode & closed != 0 {
            return Err(TlsError::Open { path: key_name, mode: mode & 0o777, chmod });
        }
        let empty = |what, path: &str, detail: String| TlsError::Empty { what, path: path.to_owned(), detail };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let chain = chain.map_err(|error| empty("certificate", &name, format!(": {error}")))?;
        let Some(first) = chain.first() else { return Err(empty("certificate", &name, String::new())) };
        let fingerprint = fingerprint(first);
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => empty("key", &key_name, String::new()),
            error => empty("key", &key_name, format!(": {error}")),
        })?;
        let unusable = |source| TlsError::Unusable { path: name.clone(), source };
        let valid_until_s = valid_until_s(first).map_err(unusable)?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { certificate: name.clone(), key: key_name.clone() }
            }
            source => unusable(source),
        })?;
        Ok(Certificate { key: Arc::new(key), fingerprint, valid_until_s })
    }

    /// The certificate's fingerprint, by which clients may know the daemon.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The time until the certificate expires at `now`, counted since 1970; zero if it has expired, and none if it does
    /// not say.
    pub fn time_left(&self, now: Duration) -> Option<Duration> {
        self.valid_until_s.map(|until_s| Duration::from_secs(until_s).saturating_sub(now))
    }

    /// Says that the certificate has expired or expires in the next [`EXPIRES_SOON`], if so; `now` is counted since
    /// 1970.
    pub fn expiry_warning(&self, now: Duration) -> Option<String> {
        let left = self.time_left(now).filter(|left| *left < EXPIRES_SOON)?;
        Some(match left.as_secs() / 86_400 {
            _ if left.is_zero() => {
                "the certificate for TLS has expired: clients without its fingerprint refuse it".into()
            }
            0 => "the certificate for TLS expires within a day".into(),
            days => format!("the certificate for TLS expires in {days} days"),
        })
    }
}

/// The certificate that a daemon shows, which may be replaced while it listens.
#[derive(Debug)]
pub struct ServedCertificate(RwLock<Certificate>);

impl ServedCertificate {
    /// Serves `certificate` first.
    pub fn new(certificate: Certificate) -> Arc<ServedCertificate> {
        Arc::new(ServedCertificate(RwLock::new(certificate)))
    }

    /// The fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.read().unwrap_or_else(PoisonError::into_inner).fingerprint
    }

    /// Shows `certificate` to clients that connect from now on.
    pub fn replace(&self, certificate: Certificate) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }

    /// The configuration of the daemon's side of connections.
    ///
    /// # Errors
    /// None that occurs: the library does not know the versions asked for.
    pub(crate) fn server(self: Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        Ok(ServedCertificate::configured(builder.with_no_client_auth(), self))
    }

    /// As [`server`](Self::server) for peers that must show a certificate as well. Any certificate is taken whose key
    /// the peer has: the caller looks at its fingerprint.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub(crate) fn mutual_server(self: Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let verifier = Arc::new(AnyCertificate { algorithms });
        Ok(ServedCertificate::configured(builder.with_client_cert_verifier(verifier), self))
    }

    fn configured(builder: ConfigBuilder<ServerConfig, WantsServerCert>, own: Arc<Self>) -> Arc<ServerConfig> {
        let mut config = builder.with_cert_resolver(own);
        // No connection is resumed, so nothing need be kept for that.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }
}

/// Takes any certificate of a peer that proves to have its key.
#[derive(Debug)]
struct AnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).key.clone())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The fingerprint of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint(Sha256::digest(certificate).into())
}

/// The bytes and the mode of a file.
fn read(path: &Path, what: &'static str) -> Result<(Vec<u8>, u32), TlsError> {
    let failed = |source| TlsError::File { what, path: path.display().to_string(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, mode))
}

/// Makes a certificate and its key in the file `path` in `folder`, unless another process does so at the same time.
fn make(folder: &Path, path: &Path) -> Result<(), TlsError> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new([OWN_NAME.to_owned()])?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, OWN_NAME);
    let certificate = params.self_signed(&key)?;
    let failed = |source| TlsError::File { what: "certificate", path: path.display().to_string(), source };
    let next = folder.join(format!("{OWN_FILE}.{}", random_hex().map_err(failed)?));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let write = || {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&next)?;
        file.write_all(certificate.pem().as_bytes())?;
        file.write_all(key.serialize_pem().as_bytes())?;
        file.sync_all()?;
        // Unlike a renaming, this does not replace the file of another process.
        match std::fs::hard_link(&next, path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    };
    let written = write().map_err(failed);
    let _ = std::fs::remove_file(&next);
    written
}

/// The end of a certificate's validity, seconds since 1970: an error of the library has it.
fn valid_until_s(certificate: &CertificateDer<'_>) -> Result<Option<u64>, rustls::Error> {
    let certificate = ParsedCertificate::try_from(certificate)?;
    let late = UnixTime::since_unix_epoch(Duration::from_secs(LATE_S));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let roots = RootCertStore::empty();
    let verified =
        rustls::client::verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], late, algorithms);
    Ok(match verified {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        // It ends before it begins.
        Err(rustls::Error::InvalidCertificate(CertificateError::Expired)) => Some(0),
        _ => None,
    })
}

/// Checks a daemon's certificate: that it has the fingerprint in the address, or that an authority has signed it for
/// the host in the address.
#[derive(Debug)]
pub(crate) struct DaemonVerifier {
    expected: Option<Fingerprint>,
    /// The check by authorities; none where a fingerprint is expected.
    by_authority: Option<Arc<WebPkiServerVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
    /// The fingerprint of the certificate that the daemon has shown.
    shown: Mutex<Option<Fingerprint>>,
}

impl DaemonVerifier {
    fn new(expected: Option<Fingerprint>) -> Result<DaemonVerifier, TlsError> {
        let by_authority = match expected {
            Some(_) => None,
            None => {
                let roots = Arc::new(authorities()?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
                Some(verifier.map_err(|_| TlsError::NoAuthorities)?)
            }
        };
        let algorithms = ring::default_provider().signature_verification_algorithms;
        Ok(DaemonVerifier { expected, by_authority, algorithms, shown: Mutex::default() })
    }

    /// The fingerprint of the certificate that the daemon has shown.
    pub(crate) fn shown(&self) -> Option<Fingerprint> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for DaemonVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = fingerprint(certificate);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        match &self.by_authority {
            Some(verifier) => verifier.verify_server_cert(certificate, intermediates, host, ocsp_response, now),
            None if self.expected == Some(shown) => Ok(ServerCertVerified::assertion()),
            None => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The authorities that this machine trusts.
fn authorities() -> Result<RootCertStore, TlsError> {
    let named = std::env::var_os(AUTHORITIES_ENV).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = named.or_else(|| AUTHORITIES.into_iter().map(PathBuf::from).find(|path| path.is_file()));
    let path = path.ok_or(TlsError::NoAuthorities)?;
    let (pem, _) = read(&path, "list of trusted authorities")?;
    let mut roots = RootCertStore::empty();
    // A list may have certificates that the library does not know: the others count.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if roots.is_empty() {
        let (what, path, detail) = ("certificate", path.display().to_string(), String::new());
        return Err(TlsError::Empty { what, path, detail });
    }
    Ok(roots)
}

/// The configuration of the client's side of a connection, and what checks the daemon's certificate. The client shows
/// the certificate `own`, if it has one.
///
/// # Errors
/// No usable list of authorities, if no fingerprint is expected.
pub(crate) fn client(
    expected: Option<Fingerprint>,
    own: Option<&Certificate>,
) -> Result<(Arc<ClientConfig>, Arc<DaemonVerifier>), TlsError> {
    let verifier = Arc::new(DaemonVerifier::new(expected)?);
    let unusable = |source| TlsError::Unusable { path: "of the daemon".into(), source };
    let builder =
        ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).map_err(unusable)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier.clone());
    let config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key.clone()))),
        None => builder.with_no_client_auth(),
    };
    Ok((Arc::new(config), verifier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("gt-tls-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        /// The paths of a certificate that is valid until the year `until` and of its key.
        fn pair(&self, name: &str, until: i32) -> (PathBuf, PathBuf) {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
            let certificate = params.self_signed(&key).unwrap();
            let paths = (self.0.join(format!("{name}.pem")), self.0.join(format!("{name}.key")));
            std::fs::write(&paths.0, certificate.pem()).unwrap();
            std::fs::write(&paths.1, key.serialize_pem()).unwrap();
            for path in [&paths.0, &paths.1] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
            }
            paths
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn complaint(certificate: &Path, key: &Path) -> String {
        Certificate::read(certificate, key).unwrap_err().to_string()
    }

    #[test]
    fn a_daemon_keeps_the_certificate_that_it_made() {
        let folder = Folder::new("own");
        let state = folder.0.join("state");
        let first = Certificate::own(&state).unwrap();
        assert_eq!(Certificate::own(&state).unwrap().fingerprint(), first.fingerprint());
        let names: Vec<_> = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [OWN_FILE]);
        let path = state.join(OWN_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let told = Certificate::own(&state).unwrap_err().to_string();
        assert!(told.contains("may be read or changed by others (mode 640): chmod 600"), "{told}");
    }

    #[test]
    fn two_daemons_that_begin_at_once_have_one_certificate() {
        let folder = Folder::new("race");
        let fingerprints: Vec<_> = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| Certificate::own(&folder.0).unwrap().fingerprint()));
            both.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert_eq!(fingerprints[0], fingerprints[1]);
    }

    #[test]
    fn a_certificate_and_its_key_are_usable_or_the_error_says_why_not() {
        let folder = Folder::new("files");
        let ((certificate, key), (_, other)) = (folder.pair("a", 2100), folder.pair("b", 2100));
        let good = Certificate::read(&certificate, &key).unwrap();
        let der = CertificateDer::from_pem_file(&certificate).unwrap();
        assert_eq!(good.fingerprint(), fingerprint(&der));
        assert!(complaint(&certificate, &other).contains("is not that of the certificate"));
        assert!(Certificate::named(None, None).unwrap().is_none());
        let half = [Certificate::named(Some(&certificate), None), Certificate::named(None, Some(&key))];
        assert!(half.into_iter().all(|half| half.unwrap_err().to_string().contains("is set, and tls_")));
        let nowhere = folder.0.join("nowhere");
        assert!(complaint(&nowhere, &key).starts_with(&format!("the certificate {}: No such file", nowhere.display())));
        assert!(complaint(&certificate, &nowhere).starts_with(&format!("the key {}: No such", nowhere.display())));
        assert!(complaint(&key, &key).contains("holds no certificate"));
        assert!(complaint(&certificate, &certificate).contains("holds no key"));
        std::fs::write(&nowhere, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(complaint(&nowhere, &key).contains("cannot be used"), "{}", complaint(&nowhere, &key));
        for (mode, good) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(Certificate::read(&certificate, &key).is_ok(), good, "{mode:o}");
        }
    }

    #[test]
    fn a_certificate_says_when_it_expires() {
        let folder = Folder::new("expires");
        let (certificate, key) = folder.pair("old", 2020);
        let old = Certificate::read(&certificate, &key).unwrap();
        // 2020-01-01 is 1,577,836,800 s after 1970.
        let end = Duration::from_secs(1_577_836_800);
        let day = Duration::from_secs(86_400);
        assert_eq!(old.time_left(end + day), Some(Duration::ZERO));
        assert_eq!(old.time_left(end - day), Some(day));
        let warning = |now| old.expiry_warning(now).unwrap_or_default();
        assert!(warning(end + day).contains("has expired") && warning(end - day / 2).contains("within a day"));
        assert!(warning(end - 3 * day).ends_with("expires in 3 days") && warning(end - 30 * day).is_empty());
    }
}
