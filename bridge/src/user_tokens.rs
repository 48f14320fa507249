//! The access tokens of users: each makes its TCP client a user, who is an administrator only if the token says so.
//!
//! A token is 256 random bits, so its SHA-256 hash needs neither a salt nor a slow function: there are too many tokens
//! to try. The daemon stores the hashes in `tokens.json` in its state directory, a file that its user alone may read. A
//! daemon without a state directory knows its tokens until it ends.

use crate::token::{equal_texts, random_hex};
use gt_protocol::TokenInfo;
use gt_protocol::limits::{TOKEN_LIFETIME_S_MAX, TOKENS_MAX, TOKENS_PER_UID_MAX};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::SystemTime;

const FILE: &str = "tokens.json";
const FILE_NEXT: &str = "tokens.json.next";
/// A longer file was not written by a daemon.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The mode bits that let users other than the owner read or write a file.
const OTHERS: u32 = 0o077;
/// The start of a user's token; its number and the secret follow.
const PREFIX: &str = "gt-";

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredToken {
    #[serde(flatten)]
    info: TokenInfo,
    /// The SHA-256 hash of the token's text, in hexadecimal digits.
    hash: String,
}

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TokenFile {
    /// The number of the token created last. Numbers are never used again.
    last: u64,
    tokens: BTreeMap<u64, StoredToken>,
}

/// The reason why a token is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFailure {
    /// There is no such token.
    #[error("wrong token: take it from the daemon's token file, by GT_TOKEN or gt.connect(…, token=…)")]
    Wrong,
    /// The token was right, but does not let this client in; the text is for users.
    #[error("{0}")]
    Unfit(String),
}

/// The tokens of all users.
pub struct UserTokens {
    folder: Option<PathBuf>,
    known: RwLock<Result<TokenFile, String>>,
    /// Held while the file is written, when `known` is not locked: a slow disk delays no client.
    writing: Mutex<()>,
}

impl UserTokens {
    /// The tokens in `folder`. Without a folder, tokens are known until the daemon ends. If the file is unusable, no
    /// token is accepted or created, and the log says why.
    pub fn open(folder: Option<PathBuf>) -> UserTokens {
        let known = folder.as_deref().map_or(Ok(TokenFile::default()), |folder| read(&folder.join(FILE)));
        if let Err(why) = &known {
            tracing::error!(target: "gtd::tcp", "no user's token is accepted: {why}");
        }
        UserTokens { folder, known: RwLock::new(known), writing: Mutex::default() }
    }

    /// True if tokens outlive the daemon.
    pub fn is_lasting(&self) -> bool {
        self.folder.is_some()
    }

    fn known(&self) -> Result<TokenFile, String> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The token with the text `text`.
    ///
    /// # Errors
    /// There is no such token, or it has expired.
    pub fn check(&self, text: &str) -> Result<TokenInfo, TokenFailure> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let id = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')?.0.parse().ok());
        let stored = id.and_then(|id: u64| known.as_ref().ok()?.tokens.get(&id)).ok_or(TokenFailure::Wrong)?;
        if !equal_texts(hash(text).as_bytes(), stored.hash.as_bytes()) {
            return Err(TokenFailure::Wrong);
        }
        if stored.info.expires_unix_s <= unix_now_s() {
            let text = format!("token {} has expired: have another made, with gtctl token create", stored.info.id);
            return Err(TokenFailure::Unfit(text));
        }
        Ok(stored.info.clone())
    }

    /// Creates a token of user `uid` that expires in `lifetime_s` seconds, and returns its text, which is stored
    /// nowhere. Waits until the file is written.
    ///
    /// # Errors
    /// A sentence for the user; then there is no new token.
    pub fn create(&self, uid: u32, lifetime_s: u64, administrator: bool) -> Result<(String, TokenInfo), String> {
        if !(1..=TOKEN_LIFETIME_S_MAX).contains(&lifetime_s) {
            return Err(format!("a token expires in 1 to {TOKEN_LIFETIME_S_MAX} seconds, not in {lifetime_s}"));
        }
        self.change(|file| {
            let now = unix_now_s();
            file.tokens.retain(|_, token| token.info.expires_unix_s > now);
            let own = file.tokens.values().filter(|token| token.info.uid == uid).count();
            if own >= TOKENS_PER_UID_MAX || file.tokens.len() >= TOKENS_MAX {
                let (held, whose) = if own >= TOKENS_PER_UID_MAX {
                    (own, format!("user {uid} has"))
                } else {
                    (file.tokens.len(), "there are".into())
                };
                return Err(format!("{whose} {held} tokens, as many as may be: revoke some, with gtctl token revoke"));
            }
            let id = file.last + 1;
            let secret = random_hex().map_err(|error| format!("there are no random numbers for a token: {error}"))?;
            let text = format!("{PREFIX}{id}-{secret}");
            let expires_unix_s = now.saturating_add(lifetime_s);
            let info = TokenInfo { id, uid, administrator, created_unix_s: now, expires_unix_s };
            file.last = id;
            file.tokens.insert(id, StoredToken { info: info.clone(), hash: hash(&text) });
            Ok((text, info))
        })
    }

    /// Removes token `id`. Waits until the file is written.
    ///
    /// # Errors
    /// A sentence for the user; then the token, if there is one, is still accepted.
    pub fn revoke(&self, id: u64) -> Result<TokenInfo, String> {
        self.change(|file| match file.tokens.remove(&id) {
            Some(token) => Ok(token.info),
            None => Err(format!("there is no token {id}: gtctl token list shows them")),
        })
    }

    /// All tokens, by number.
    ///
    /// # Errors
    /// The file is unusable.
    pub fn list(&self) -> Result<Vec<TokenInfo>, String> {
        Ok(self.known()?.tokens.into_values().map(|token| token.info).collect())
    }

    /// Changes the file, then the tokens in force.
    fn change<T>(&self, change: impl FnOnce(&mut TokenFile) -> Result<T, String>) -> Result<T, String> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.known()?;
        let result = change(&mut file)?;
        if let Some(folder) = &self.folder {
            write(folder, &file)
                .map_err(|error| format!("{} cannot be written: {error}", folder.join(FILE).display()))?;
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Ok(file);
        Ok(result)
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The contents of the file; no tokens if there is no file.
fn read(path: &Path) -> Result<TokenFile, String> {
    let failed =
        |why: String| format!("{}: {why}; mend or remove the file, and start the daemon again", path.display());
    let system = |error: Error| failed(error.to_string());
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TokenFile::default()),
        Err(error) => return Err(system(error)),
    };
    let about = file.metadata().map_err(system)?;
    if about.mode() & OTHERS != 0 || ![0, rustix::process::geteuid().as_raw()].contains(&about.uid()) {
        return Err(failed("others than the daemon's user may read or change it".into()));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(system)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

fn write(folder: &Path, contents: &TokenFile) -> std::io::Result<()> {
    let next = folder.join(FILE_NEXT);
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(&serde_json::to_vec(contents)?)?;
    file.sync_all()?;
    std::fs::rename(next, folder.join(FILE))?;
    // Without this, a revoked token could be back after a power failure.
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("gt-tokens-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn tokens(&self) -> UserTokens {
            UserTokens::open(Some(self.0.clone()))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_token_is_its_users_until_it_is_revoked() {
        let folder = Folder::new("revoked");
        let tokens = folder.tokens();
        let (ana, of_ana) = tokens.create(7, 3600, false).unwrap();
        let (ben, of_ben) = tokens.create(8, 3600, true).unwrap();
        assert_eq!((of_ana.id, of_ana.uid, of_ana.administrator), (1, 7, false));
        let stored = std::fs::read_to_string(folder.0.join(FILE)).unwrap();
        for (text, info) in [(&ana, &of_ana), (&ben, &of_ben)] {
            assert_eq!(tokens.check(text).as_ref(), Ok(info));
            let secret = text.rsplit('-').next().unwrap();
            assert!(secret.len() == 64 && !stored.contains(secret), "{stored}");
            for wrong in [format!("{text}0"), text[..text.len() - 1].into(), secret.into(), text.replace("gt-", "gt-0")]
            {
                assert_eq!(tokens.check(&wrong), Err(TokenFailure::Wrong), "{wrong}");
            }
        }
        assert_eq!(std::fs::metadata(folder.0.join(FILE)).unwrap().mode() & 0o777, 0o600);
        assert_eq!(tokens.revoke(of_ana.id), Ok(of_ana.clone()));
        assert!(tokens.revoke(of_ana.id).unwrap_err().starts_with("there is no token 1"));
        // The next daemon knows the same.
        for tokens in [tokens, folder.tokens()] {
            assert_eq!(tokens.check(&ana), Err(TokenFailure::Wrong));
            assert_eq!(tokens.check(&ben), Ok(of_ben.clone()));
            assert_eq!(tokens.list(), Ok(vec![of_ben.clone()]));
        }
        assert_eq!(folder.tokens().create(7, 1, false).unwrap().1.id, 3, "a number is not used again");
    }

    #[test]
    fn a_token_expires() {
        let folder = Folder::new("expires");
        let tokens = folder.tokens();
        let (text, _) = tokens.create(7, 3600, false).unwrap();
        let mut file = tokens.known().unwrap();
        file.tokens.get_mut(&1).unwrap().info.expires_unix_s = unix_now_s();
        write(&folder.0, &file).unwrap();
        let tokens = folder.tokens();
        assert!(matches!(tokens.check(&text), Err(TokenFailure::Unfit(why)) if why.starts_with("token 1 has expired")));
        tokens.create(8, 3600, false).unwrap();
        assert_eq!(tokens.list().unwrap().len(), 1, "an expired token is dropped");
        for lifetime_s in [0, TOKEN_LIFETIME_S_MAX + 1, u64::MAX] {
            assert!(tokens.create(7, lifetime_s, false).unwrap_err().starts_with("a token expires in"));
        }
    }

    #[test]
    fn a_user_has_a_limit_of_tokens() {
        let tokens = UserTokens::open(None);
        for _ in 0..TOKENS_PER_UID_MAX {
            tokens.create(7, 60, false).unwrap();
        }
        assert!(tokens.create(7, 60, false).unwrap_err().starts_with("user 7 has"));
        tokens.create(8, 60, false).unwrap();
    }

    #[test]
    fn an_unusable_file_lets_nobody_in_and_is_not_replaced() {
        let folder = Folder::new("bad");
        let (text, _) = folder.tokens().create(7, 3600, false).unwrap();
        let file = folder.0.join(FILE);
        let good = std::fs::read(&file).unwrap();
        let refused = |why: &str| {
            let tokens = folder.tokens();
            assert_eq!(tokens.check(&text), Err(TokenFailure::Wrong));
            let told =
                [tokens.create(7, 3600, false).unwrap_err(), tokens.revoke(1).unwrap_err(), tokens.list().unwrap_err()];
            assert!(told.iter().all(|text| text.contains(why)), "{told:?}");
        };
        for bad in ["", "{", "[]", r#"{"last": -1, "tokens": {}}"#] {
            std::fs::write(&file, bad).unwrap();
            refused("mend or remove the file");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), bad);
        }
        std::fs::write(&file, &good).unwrap();
        assert!(folder.tokens().check(&text).is_ok());
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o660)).unwrap();
        refused("others than the daemon's user may read or change it");
    }

    #[test]
    fn a_token_that_cannot_be_stored_is_none() {
        let folder = Folder::new("gone");
        let tokens = folder.tokens();
        std::fs::remove_dir_all(&folder.0).unwrap();
        assert!(tokens.create(7, 3600, false).unwrap_err().contains("tokens.json cannot be written"));
        assert_eq!(tokens.list(), Ok(vec![]));
    }
}
