//! The invitations, and the nodes that have joined.
//!
//! A node makes its own certificate and shows it when it joins with the secret of an invitation. The daemon keeps the
//! certificate's fingerprint, by which it knows the node from then on; the secret is used up. The file
//! [`NODES_FILE`] outlives the daemon, invitations do not.

use gt_bridge::token::{equal_texts, random_hex};
use gt_protocol::address::Fingerprint;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The file of the nodes that have joined.
pub const NODES_FILE: &str = "nodes.json";
/// The most characters of a node's name: with a worker's, as in `node7/cuda:15`, it fits a worker's name.
pub const NODE_NAME_CHARACTERS_MAX: usize = 8;
/// The most nodes.
const NODES_MAX: usize = 1024;
/// The most invitations at one time.
const INVITATIONS_MAX: usize = 256;

/// A node that has joined once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// The fingerprint of its certificate.
    pub fingerprint: String,
    /// When it joined, seconds since 1970.
    pub joined_s: u64,
    /// The most workers that it may bring; none for any number.
    #[serde(default)]
    pub workers_max: Option<u32>,
}

/// An invitation that was not used yet.
struct Invitation {
    secret: String,
    expires: Instant,
    workers_max: Option<u32>,
}

#[derive(Default)]
struct RegistryState {
    nodes: Vec<KnownNode>,
    invitations: Vec<Invitation>,
    /// Secrets that have expired, to tell their users so.
    expired: Vec<String>,
}

/// The invitations and the known nodes.
pub struct Registry {
    file: PathBuf,
    state: Mutex<RegistryState>,
}

/// A node that wants to join.
pub struct Candidate<'a> {
    /// The fingerprint of the certificate that it has shown.
    pub fingerprint: Fingerprint,
    /// The secret of an invitation.
    pub secret: &'a str,
    /// The name that it wants.
    pub name: Option<&'a str>,
    /// The name of its machine.
    pub host: &'a str,
    /// The number of its workers.
    pub workers: usize,
}

impl Registry {
    /// The registry in `folder`.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn open(folder: &Path) -> Result<Registry, String> {
        let file = folder.join(NODES_FILE);
        let nodes = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                format!("{} holds no list of nodes: {error}; remove it to begin anew", file.display())
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("the list of nodes {}: {error}", file.display())),
        };
        Ok(Registry { file, state: Mutex::new(RegistryState { nodes, ..RegistryState::default() }) })
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an invitation that one node may use in the next `lifetime`, and returns its secret.
    ///
    /// # Errors
    /// There are too many invitations.
    pub fn invite(&self, lifetime: Duration, workers_max: Option<u32>) -> Result<String, String> {
        let mut state = self.lock();
        state.expire();
        if state.invitations.len() >= INVITATIONS_MAX {
            return Err(format!("{INVITATIONS_MAX} invitations wait to be used: use them, or wait until they expire"));
        }
        let secret = random_hex().map_err(|error| format!("no secret can be made: {error}"))?;
        let expires = Instant::now() + lifetime;
        state.invitations.push(Invitation { secret: secret.clone(), expires, workers_max });
        Ok(secret)
    }

    /// The nodes that have joined, by name.
    pub fn nodes(&self) -> Vec<KnownNode> {
        self.lock().nodes.clone()
    }

    /// Lets in a node that is known or has the secret of an invitation, and returns its name.
    ///
    /// # Errors
    /// The node may not join: the reason, for its user.
    pub fn admit(&self, candidate: &Candidate<'_>) -> Result<String, String> {
        let mut state = self.lock();
        state.expire();
        let fingerprint = candidate.fingerprint.to_string();
        let too_many = |limit: Option<u32>| {
            let limit = limit.filter(|limit| candidate.workers > *limit as usize)?;
            let workers = candidate.workers;
            Some(format!(
                "the node brings {workers} workers, and its invitation allows {limit}: start it with fewer --workers, or \
                 ask for another with gtctl invite --workers {workers}"
            ))
        };
        if let Some(known) = state.nodes.iter().find(|node| node.fingerprint == fingerprint) {
            return too_many(known.workers_max).map_or_else(|| Ok(known.name.clone()), Err);
        }
        let secret = candidate.secret.as_bytes();
        let invited = state.invitations.iter().position(|invited| equal_texts(invited.secret.as_bytes(), secret));
        let Some(invited) = invited else {
            let expired = state.expired.iter().any(|expired| equal_texts(expired.as_bytes(), secret));
            let why = if expired { "this invitation has expired" } else { "the secret is wrong, or was used already" };
            return Err(format!("{why}: make a new invitation with gtctl invite on the daemon's machine"));
        };
        if let Some(why) = too_many(state.invitations[invited].workers_max) {
            return Err(why);
        }
        if state.nodes.len() >= NODES_MAX {
            return Err(format!("{NODES_MAX} nodes are known: remove one with gtctl node remove"));
        }
        let name = state.free_name(candidate)?;
        let joined_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let workers_max = state.invitations[invited].workers_max;
        let mut nodes = state.nodes.clone();
        nodes.push(KnownNode { name: name.clone(), fingerprint, joined_s, workers_max });
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        self.write(&nodes)?;
        state.nodes = nodes;
        state.invitations.remove(invited);
        Ok(name)
    }

    /// Forgets a node: it has to be invited again.
    ///
    /// # Errors
    /// There is no such node, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        let mut state = self.lock();
        let mut nodes = state.nodes.clone();
        nodes.retain(|node| node.name != name);
        if nodes.len() == state.nodes.len() {
            return Err(format!("there is no node {name}: gtctl node list shows them"));
        }
        self.write(&nodes)?;
        state.nodes = nodes;
        Ok(())
    }

    fn write(&self, nodes: &[KnownNode]) -> Result<(), String> {
        let failed =
            |error: std::io::Error| format!("the list of nodes {} cannot be written: {error}", self.file.display());
        let text = serde_json::to_vec_pretty(nodes).map_err(|error| error.to_string())?;
        let next = self.file.with_extension("json.next");
        if let Some(folder) = self.file.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let write = || {
            let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&next, &self.file)
        };
        write().map_err(failed)
    }
}

impl RegistryState {
    /// Forgets invitations that have expired.
    fn expire(&mut self) {
        let now = Instant::now();
        for invitation in self.invitations.extract_if(.., |invitation| invitation.expires <= now) {
            self.expired.push(invitation.secret);
        }
        let excess = self.expired.len().saturating_sub(INVITATIONS_MAX);
        self.expired.drain(..excess);
    }

    /// The name of a new node: the one that it wants, else its machine's, else a number.
    fn free_name(&self, candidate: &Candidate<'_>) -> Result<String, String> {
        let is_taken = |name: &str| self.nodes.iter().any(|node| node.name == name);
        if let Some(name) = candidate.name {
            check_name(name)?;
            if is_taken(name) {
                return Err(format!(
                    "another node is called {name}: choose another --name, or remove that one with gtctl node remove"
                ));
            }
            return Ok(name.to_owned());
        }
        let host = candidate.host.split('.').next().unwrap_or_default();
        if check_name(host).is_ok() && !is_taken(host) {
            return Ok(host.to_owned());
        }
        let numbered = (1..).map(|number| format!("node{number}")).find(|name| !is_taken(name));
        numbered.ok_or_else(|| "no name is free".into())
    }
}

/// Checks the name of a node.
///
/// # Errors
/// The name is empty, too long, or has other characters.
pub fn check_name(name: &str) -> Result<(), String> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NODE_NAME_CHARACTERS_MAX).contains(&name.chars().count()) && name.chars().all(known) {
        return Ok(());
    }
    Err(format!(
        "`{name}` is no name of a node: write 1 to {NODE_NAME_CHARACTERS_MAX} letters, digits, `-`, `_` or `.`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate<'a>(number: u8, secret: &'a str, host: &'a str) -> Candidate<'a> {
        Candidate { fingerprint: Fingerprint([number; 32]), secret, name: None, host, workers: 2 }
    }

    fn registry(name: &str) -> (Registry, PathBuf) {
        let folder = std::env::temp_dir().join(format!("gt-nodes-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        (Registry::open(&folder).unwrap(), folder)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_invitation_lets_in_one_node_which_is_known_from_then_on() {
        let (registry, folder) = registry("once");
        let secret = registry.invite(HOUR, None).unwrap();
        let admit = |number, secret: &str| registry.admit(&candidate(number, secret, "box.example.org"));
        assert!(admit(1, "wrong").unwrap_err().starts_with("the secret is wrong, or was used already: make a new"));
        assert_eq!(admit(1, &secret).unwrap(), "box");
        assert!(admit(2, &secret).unwrap_err().contains("was used already"));
        // The same machine needs no secret any more, also of a daemon that was started again.
        assert_eq!(admit(1, "").unwrap(), "box");
        let again = Registry::open(&folder).unwrap();
        assert_eq!(again.admit(&candidate(1, "", "elsewhere")).unwrap(), "box");
        registry.remove("box").unwrap();
        assert!(admit(1, &secret).unwrap_err().contains("was used already"));
        assert!(registry.remove("box").unwrap_err().starts_with("there is no node box: gtctl node list"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn invitations_expire_and_limit_the_workers() {
        let (registry, folder) = registry("limits");
        let late = registry.invite(Duration::ZERO, None).unwrap();
        let told = registry.admit(&candidate(1, &late, "a")).unwrap_err();
        assert!(told.starts_with("this invitation has expired: make a new invitation with gtctl invite"), "{told}");
        let small = registry.invite(HOUR, Some(1)).unwrap();
        let told = registry.admit(&candidate(1, &small, "a")).unwrap_err();
        assert!(told.contains("brings 2 workers, and its invitation allows 1"), "{told}");
        assert_eq!(registry.admit(&Candidate { workers: 1, ..candidate(1, &small, "a") }).unwrap(), "a");
        let told = registry.admit(&candidate(1, "", "a")).unwrap_err();
        assert!(told.contains("its invitation allows 1"), "{told}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_are_the_ones_that_are_free() {
        let (registry, folder) = registry("names");
        let join = |number, name, host| {
            let secret = registry.invite(HOUR, None).unwrap();
            registry.admit(&Candidate { name, ..candidate(number, &secret, host) })
        };
        assert_eq!(join(1, None, "a-very-long-name-of-a-machine").unwrap(), "node1");
        assert_eq!(join(2, None, "box").unwrap(), "box");
        assert_eq!(join(3, None, "box").unwrap(), "node2");
        assert_eq!(join(4, Some("left"), "box").unwrap(), "left");
        assert!(join(5, Some("left"), "box").unwrap_err().starts_with("another node is called left: choose another"));
        assert!(join(5, Some("no/slash"), "box").unwrap_err().contains("is no name of a node"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
