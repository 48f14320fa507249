//! The control socket: a Unix `SOCK_SEQPACKET` socket, which keeps message boundaries and passes descriptors.

use crate::error::{Error, Result, os};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most descriptors in one message.
pub const MESSAGE_FDS_MAX: usize = 8;

/// The most supplementary groups of a process: Linux's NGROUPS_MAX.
const GROUPS_MAX: usize = 65_536;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A connected or listening socket, close-on-exec.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// The kernel's record of the process at the other end (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process id; 0 if the process is in a PID namespace that is not visible from here.
    pub pid: u32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// The length of the message in the buffer.
    pub len: usize,
    /// The message's descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    let what = "use this socket path (108 bytes at most)";
    // A leading `@` means the abstract namespace, as in `ss` and systemd.
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name).map_err(os(what)),
        _ => SocketAddrUnix::new(path).map_err(os(what)),
    }
}

fn new_socket() -> Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(os("create a socket"))
}

impl Socket {
    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn pair() -> Result<(Self, Self)> {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map(|(a, b)| (Self(a), Self(b)))
            .map_err(os("create a socket pair"))
    }

    /// Listens at `path`; a path that starts with `@` is an abstract name. The file must not exist.
    ///
    /// # Errors
    /// If the path is taken, too long or not writable.
    pub fn listen(path: &Path) -> Result<Self> {
        let fd = new_socket()?;
        rustix::net::bind(&fd, &address(path)?).map_err(os("bind the socket"))?;
        rustix::net::listen(&fd, BACKLOG).map_err(os("listen on the socket"))?;
        Ok(Self(fd))
    }

    /// Accepts a connection; `None` if the listener is non-blocking and no connection is pending.
    ///
    /// # Errors
    /// An error of the system, for example because the process has no descriptors left.
    pub fn accept(&self) -> Result<Option<Self>> {
        loop {
            return match rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC) {
                Ok(fd) => Ok(Some(Self(fd))),
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => Err(os("accept a connection")(errno)),
            };
        }
    }

    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// If no process listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Self> {
        let fd = new_socket()?;
        rustix::net::connect(&fd, &address(path)?).map_err(os("connect to the socket"))?;
        Ok(Self(fd))
    }

    /// Makes the socket non-blocking, or blocking again.
    ///
    /// # Errors
    /// An error of the system.
    pub fn set_nonblocking(&self, on: bool) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.0, on).map_err(os("make a socket non-blocking"))
    }

    /// Sends one message with descriptors. Waits for room for at most `timeout`: `None` means forever, zero does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::HungUp`], [`Error::TimedOut`], or an error of the system.
    ///
    /// # Panics
    /// With more than [`MESSAGE_FDS_MAX`] descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<()> {
        assert!(fds.len() <= MESSAGE_FDS_MAX, "{} descriptors in a message", fds.len());
        let deadline = Deadline::new(timeout);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
                debug_assert!(pushed, "the buffer holds MESSAGE_FDS_MAX descriptors");
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => self.wait_for(PollFlags::OUT, &deadline)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::HungUp),
                Err(errno) => return Err(os("send a message")(errno)),
            }
        }
    }

    /// Receives one message into `buffer`, with at most `fds_max` descriptors. Waits for at most `timeout`: `None`
    /// means forever, zero does not wait.
    ///
    /// # Errors
    /// [`Error::HungUp`] after the peer has closed, [`Error::TimedOut`], [`Error::MessageTooLong`] if the buffer is too
    /// short, [`Error::SurplusDescriptors`] if the message has more descriptors (all are closed).
    pub fn recv(&self, buffer: &mut [u8], fds_max: usize, timeout: Option<Duration>) -> Result<Received> {
        let deadline = Deadline::new(timeout);
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
            // If no descriptor is expected, the buffer has no room for one, so the kernel does not install it in this
            // process. Closing a descriptor of a hostile peer (a file in its own FUSE file system) could block.
            let room = if fds_max == 0 { 0 } else { space.len() };
            let mut control = RecvAncillaryBuffer::new(&mut space[..room]);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let limit_bytes = buffer.len();
            let mut parts = [IoSliceMut::new(buffer)];
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags) {
                Ok(message) => {
                    // The descriptors are taken out first, so that an error below closes them.
                    let mut fds = Vec::new();
                    for part in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = part {
                            fds.extend(rights);
                        }
                    }
                    if message.flags.contains(ReturnFlags::CTRUNC) || fds.len() > fds_max {
                        return Err(Error::SurplusDescriptors { expected: fds_max });
                    }
                    if message.flags.contains(ReturnFlags::TRUNC) {
                        return Err(Error::MessageTooLong { limit_bytes });
                    }
                    // The peer has closed. An empty message would look the same, but no protocol here has one.
                    if message.bytes == 0 {
                        return Err(Error::HungUp);
                    }
                    return Ok(Received { len: message.bytes, fds });
                }
                Err(Errno::AGAIN) => self.wait_for(PollFlags::IN, &deadline)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(Error::HungUp),
                Err(errno) => return Err(os("receive a message")(errno)),
            }
        }
    }

    fn wait_for(&self, events: PollFlags, deadline: &Deadline) -> Result<()> {
        let left = deadline.left()?;
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&self.0, events)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(os("wait for a socket")(errno)),
        }
    }

    /// True if the peer has closed its end or died. Costs one system call; does not wait.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().intersects(gone))
    }

    /// Shuts down both directions: the peer sees a hang-up even if another process has a copy of this socket.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// The credentials of the peer: of the client for an accepted connection, of the listener for a client.
    ///
    /// # Errors
    /// If this is not a connected Unix socket.
    pub fn peer_credentials(&self) -> Result<PeerCredentials> {
        let mut ucred = libc::ucred { pid: 0, uid: 0, gid: 0 };
        self.option(libc::SO_PEERCRED, &mut ucred).map_err(os("ask who is at the other end"))?;
        Ok(PeerCredentials { pid: ucred.pid as u32, uid: ucred.uid, gid: ucred.gid })
    }

    /// The supplementary groups of the peer, besides the group of [`peer_credentials`](Self::peer_credentials).
    ///
    /// # Errors
    /// An error of the system.
    pub fn peer_groups(&self) -> Result<Vec<u32>> {
        let mut groups = vec![0u32; GROUPS_MAX];
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of `groups`, and any bytes are valid `u32`s.
        let status = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if status != 0 {
            return Err(os("ask for the groups of who is at the other end")(std::io::Error::last_os_error()));
        }
        groups.truncate(len as usize / size_of::<u32>());
        Ok(groups)
    }

    /// Reads the socket option `name` into `value`, which must have the kernel's type for it.
    fn option<T: Copy>(&self, name: libc::c_int, value: &mut T) -> std::io::Result<()> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of `value`; the callers pass plain C types,
        // for which any bytes are valid.
        let status = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, name, (&raw mut *value).cast(), &raw mut len)
        };
        if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// A pidfd, which becomes readable when the peer's process ends.
    ///
    /// Before Linux 6.5 it is opened by process id, so the peer must still be alive.
    ///
    /// # Errors
    /// If the peer has ended, or the process has no descriptors left.
    pub fn peer_pidfd(&self) -> Result<OwnedFd> {
        let mut fd: libc::c_int = -1;
        match self.option(SO_PEERPIDFD, &mut fd) {
            // SAFETY: getsockopt has just opened this descriptor for this call, so nothing else owns it.
            Ok(()) if fd >= 0 => return Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => {}
        }
        let what = "watch the peer's process (pidfd_open)";
        let pid =
            rustix::process::Pid::from_raw(self.peer_credentials()?.pid as i32).ok_or(Errno::SRCH).map_err(os(what))?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map_err(os(what))
    }
}

/// `SO_PEERPIDFD`, in Linux since 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

struct Deadline {
    timeout: Option<Duration>,
    start: Instant,
}

impl Deadline {
    fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, start: Instant::now() }
    }

    /// The time left; `None` means forever.
    fn left(&self) -> Result<Option<Duration>> {
        match self.timeout {
            None => Ok(None),
            Some(timeout) => match timeout.checked_sub(self.start.elapsed()) {
                Some(left) if !left.is_zero() => Ok(Some(left)),
                _ => Err(Error::TimedOut(timeout)),
            },
        }
    }
}
