//! Names of users, looked up once.

use nix::unistd::{Uid, User};
use std::collections::HashMap;

/// The users whose names are known; further ones have their numbers.
const NAMES_MAX: usize = 4096;
/// The characters of a name.
const NAME_CHARACTERS_MAX: usize = 64;

/// The names of some users, all different.
#[derive(Clone, Debug, Default)]
pub struct UserNames(HashMap<u32, String>);

impl UserNames {
    /// Looks a user up, unless it is known. A user without a name has its number, and one with another's name has both.
    pub fn look_up(&mut self, uid: u32) {
        if self.0.contains_key(&uid) || self.0.len() >= NAMES_MAX {
            return;
        }
        let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = found.map_or_else(|| uid.to_string(), |user| user.name.chars().take(NAME_CHARACTERS_MAX).collect());
        let is_taken = self.0.values().any(|taken| *taken == name);
        self.0.insert(uid, if is_taken { format!("{name}({uid})") } else { name });
    }

    /// The name of a user that was looked up.
    pub fn get(&self, uid: u32) -> Option<&str> {
        self.0.get(&uid).map(String::as_str)
    }

    /// The name of a user, who is looked up.
    pub fn name(&mut self, uid: u32) -> String {
        self.look_up(uid);
        self.get(uid).map_or_else(|| uid.to_string(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_all_different() {
        let mut names = UserNames::default();
        // Another user with the name of root, as some systems have.
        names.0.insert(12_345, "root".into());
        for uid in [0, 4_000_000_001, 0] {
            names.look_up(uid);
        }
        assert_eq!(names.get(0), Some("root(0)"));
        assert_eq!(names.get(4_000_000_001), Some("4000000001"));
        assert_eq!(names.get(7), None);
        assert_eq!(names.name(0), "root(0)");
    }
}
