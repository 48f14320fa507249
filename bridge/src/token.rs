//! The access token that a client presents, and the daemon's own one, which lets in any user of its machine.
//!
//! Between machines a token travels by TLS, unless both sides were told to go without.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The environment variable that has the token.
pub const TOKEN_ENV: &str = "GT_TOKEN";
/// The token file of the machine's daemon.
pub const SYSTEM_TOKEN: &str = "/run/gt/token";
/// The fewest bytes of a token.
const TOKEN_BYTES_MIN: usize = 16;
/// The most bytes of a token.
const TOKEN_BYTES_MAX: usize = 256;
/// The random bytes of a generated token.
const RANDOM_BYTES: usize = 32;
/// The mode bits that let users other than the owner read or write a file.
const OTHERS: u32 = 0o077;

/// An access token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A missing or unusable token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The text is not a token; the field names where the text comes from.
    #[error(
        "{0} holds no token: it has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} letters and digits; remove it to have one made"
    )]
    Malformed(String),
    /// A token file that other users may read.
    #[error("{0} may be read by others, so anybody may know the token: chmod 600 {0}, or remove it to have one made")]
    Open(String),
    /// A token file that cannot be read or written.
    #[error("the token file {path}: {source}; name another with --token-file, or set {TOKEN_ENV}")]
    File {
        /// The file's path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// Neither a token file nor a home directory is known.
    #[error("there is no home for a token file: name one with --token-file, or set {TOKEN_ENV}")]
    Nowhere,
    /// The client has no token; the field is the path of the file that could hold it.
    #[error(
        "connecting by TCP takes the daemon's token: set {TOKEN_ENV}, or copy the daemon's token file to {0}; the daemon \
         says where its own is"
    )]
    None(String),
}

// `Debug` does not show the token's text, which must not get into a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token in `text`; `origin` names the text's origin in errors.
    ///
    /// # Errors
    /// Text that is too short, too long, or has characters other than letters, digits and `-._~+/=`.
    pub fn new(text: &str, origin: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._~+/=".contains(&c);
        let good = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed);
        if good { Ok(Token(text.to_owned())) } else { Err(TokenError::Malformed(origin.to_owned())) }
    }

    /// Whether `other` is this token. The time does not depend on where the texts differ.
    pub fn matches(&self, other: &str) -> bool {
        equal_texts(self.0.as_bytes(), other.as_bytes())
    }

    /// The text, to be sent.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn random() -> io::Result<Token> {
        random_hex().map(Token)
    }
}

/// Whether two texts are equal. The time does not depend on where they differ.
pub fn equal_texts(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    std::hint::black_box(differ) == 0 && one.len() == other.len()
}

/// 256 random bits as hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The path of the user's token file: `~/.config/gt/token`.
pub fn user_file() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
    Some(config.join("gt/token"))
}

fn in_environment() -> Option<Result<Token, TokenError>> {
    let text = std::env::var(TOKEN_ENV).ok().filter(|text| !text.is_empty())?;
    Some(Token::new(&text, TOKEN_ENV))
}

/// The daemon's token and its file: the token in `file`, or without `file` the environment's token, else the token in
/// the default file. If the file does not exist, it is created with a new token.
///
/// # Errors
/// A malformed token; a file that others may read, or that cannot be read or written.
pub fn daemon_token(file: Option<&Path>) -> Result<(Token, Option<PathBuf>), TokenError> {
    if file.is_none()
        && let Some(token) = in_environment()
    {
        return Ok((token?, None));
    }
    // The default is a file in the service manager's directory for this service, else the user's file.
    let runtime = || std::env::var_os("RUNTIME_DIRECTORY").map(|folder| PathBuf::from(folder).join("token"));
    let file = file.map(Path::to_owned).or_else(runtime).or_else(user_file).ok_or(TokenError::Nowhere)?;
    let failed = |source| TokenError::File { path: file.display().to_string(), source };
    match read(&file) {
        Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let token = Token::random().map_err(failed)?;
            if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            }
            // `create_new` follows no symbolic link and fails if the file appeared meanwhile.
            let mut new =
                std::fs::File::options().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
            writeln!(new, "{}", token.text()).map_err(failed)?;
            Ok((token, Some(file)))
        }
        token => Ok((token?, Some(file))),
    }
}

/// A client's token: `given`, else the environment's, else the one in the user's file, else the one in
/// [`SYSTEM_TOKEN`].
///
/// # Errors
/// A malformed token, a file that others may read, or no token.
pub fn client_token(given: Option<&str>) -> Result<Token, TokenError> {
    if let Some(text) = given {
        return Token::new(text, "the token given");
    }
    if let Some(token) = in_environment() {
        return token;
    }
    let own = user_file();
    for file in own.iter().map(PathBuf::as_path).chain([Path::new(SYSTEM_TOKEN)]) {
        match read(file) {
            Err(TokenError::File { .. }) => {}
            token => return token,
        }
    }
    Err(TokenError::None(own.map_or_else(|| "~/.config/gt/token".into(), |file| file.display().to_string())))
}

fn read(path: &Path) -> Result<Token, TokenError> {
    let name = path.display().to_string();
    let failed = |source| TokenError::File { path: name.clone(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & OTHERS != 0 {
        return Err(TokenError::Open(name));
    }
    let mut text = String::new();
    // One byte more than the longest token and its line end, so that a longer file is found malformed.
    file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_string(&mut text).map_err(failed)?;
    Token::new(&text, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_matches_itself_alone() {
        let token = Token::new("0123456789abcdef\n", "").unwrap();
        assert!(token.matches("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "x123456789abcdef"] {
            assert!(!token.matches(other), "{other}");
        }
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in ["", "short", "0123456789abcde\u{e9}", "0123456789 abcdef", &"x".repeat(257)] {
            assert!(Token::new(text, "here").unwrap_err().to_string().starts_with("here holds no token"));
        }
    }

    #[test]
    fn a_file_is_made_once_and_is_its_owners_alone() {
        let folder = std::env::temp_dir().join(format!("gt-token-{}", std::process::id()));
        let file = folder.join("gt/token");
        let (token, place) = daemon_token(Some(&file)).unwrap();
        assert_eq!(place.as_deref(), Some(file.as_path()));
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(daemon_token(Some(&file)).unwrap().0, token, "the second daemon has the same");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(daemon_token(Some(&file)), Err(TokenError::Open(_))));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
