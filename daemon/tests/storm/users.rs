//! The users of the processes of a storm. They are ids that no machine gives to people, and a process takes one before
//! it connects, which only root may.

use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

/// The users of the attackers.
pub const ATTACKERS: [u32; 4] = [61_011, 61_012, 61_013, 61_014];
/// The user of the training clients.
pub const TRAINER: u32 = 61_015;
/// The user of the bystander.
pub const BYSTANDER: u32 = 61_016;
/// Linux's `nobody`, who guesses tokens and is therefore refused for some time.
pub const NOBODY: u32 = 65_534;

/// The niceness of what runs before all others.
const FIRST_NICE: libc::c_int = -20;

/// The variable with the user id that a process takes.
pub const UID_ENV: &str = "GT_STORM_UID";

/// True if this process can start processes of other users.
pub fn may_become_others() -> bool {
    geteuid().is_root()
}

/// True if this process has become [`NOBODY`].
pub fn is_nobody() -> bool {
    geteuid() == Uid::from_raw(NOBODY)
}

/// Lets the threads of process `pid` run before those of all other processes.
pub fn put_first(pid: u32) {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let thread: libc::id_t = task.file_name().to_string_lossy().parse().unwrap();
        // SAFETY: the call takes numbers, and no memory of this process.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, FIRST_NICE) };
    }
}

/// Becomes the user that [`UID_ENV`] names, if it is set.
pub fn become_user() {
    let Ok(uid) = std::env::var(UID_ENV) else { return };
    let uid: u32 = uid.parse().unwrap();
    setgroups(&[]).unwrap();
    setgid(Gid::from_raw(uid)).unwrap();
    setuid(Uid::from_raw(uid)).unwrap();
}
