//! The user at the other end of a TCP connection within this machine, by the kernel's tables of sockets.
//!
//! A table shows user 0 for a socket that its process has closed, so only an entry in the state ESTABLISHED counts, and
//! only one that has the same inode when it is read again: the kernel writes the fields of an entry one by one, and the
//! process may close its socket in between. The addresses may belong to another socket as soon as this end of
//! the connection is closed, so this end must be ESTABLISHED after the entry was read.
//!
//! The kernel is asked for one socket by `sock_diag(7)`. Where it has no such interface, the tables in `/proc/net` are
//! read, which takes some 30 ms each on a machine with much memory, however few sockets there are.

use rustix::fs::fstat;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The kernel's tables of sockets in this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state ESTABLISHED as a table shows it.
const ESTABLISHED: &str = "01";
/// How often an entry is looked up that is not found: sockets that come and go can hide one from a reader.
const LOOKUPS_MAX: usize = 4;
/// True once `sock_diag` has found a socket: then its answer that there is none can be believed.
static DIAG_WORKS: AtomicBool = AtomicBool::new(false);

/// Where a connection comes from. What one origin does costs no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerOrigin {
    /// A user of this machine.
    User(u32),
    /// Another machine, or its network if the address is of IPv6, where one machine has many addresses.
    Machine(IpAddr),
}

impl PeerOrigin {
    /// The origin of a connection from `address`, which is user `local`'s of this machine if that is known.
    pub fn new(local: Option<u32>, address: IpAddr) -> PeerOrigin {
        match (local, address.to_canonical()) {
            (Some(uid), _) => PeerOrigin::User(uid),
            (None, IpAddr::V6(address)) => {
                let network = address.to_bits() & (u128::MAX << 64);
                PeerOrigin::Machine(Ipv6Addr::from_bits(network).into())
            }
            (None, address) => PeerOrigin::Machine(address),
        }
    }
}

impl fmt::Display for PeerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerOrigin::User(uid) => write!(f, "user {uid}"),
            PeerOrigin::Machine(address) => write!(f, "{address}"),
        }
    }
}

/// The reason why the user at the other end is not known.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The client has closed the connection.
    #[error("the connection was closed before its user was known: keep it open until the daemon has answered")]
    Closed,
    /// The kernel's tables have no socket for the client.
    #[error(
        "the kernel's table of sockets does not show whose the connection is: connect again, or use the Unix socket"
    )]
    Unknown,
    /// The tables cannot be read.
    #[error("the kernel's table of sockets cannot be read, so nobody's user is known by TCP: {0}")]
    Table(#[from] std::io::Error),
}

/// A socket in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableEntry {
    uid: u32,
    inode: u64,
}

/// The user id of the process at the other end of `tcp`, whose address is `peer`; none for a process on another machine
/// or in another network namespace.
///
/// # Errors
/// The client has closed the connection, or the kernel does not tell.
pub fn local_user(tcp: &TcpStream, peer: SocketAddr) -> Result<Option<u32>, PeerError> {
    let own = tcp.local_addr()?;
    let inode = fstat(tcp).map_err(std::io::Error::from)?.st_ino;
    if let Ok(diag) = SocketDiag::open() {
        if !DIAG_WORKS.load(Relaxed) && matches!(diag.find(own, peer), Ok(Some(_))) {
            DIAG_WORKS.store(true, Relaxed);
        }
        if DIAG_WORKS.load(Relaxed) {
            return user_by(inode, own, peer, |local, remote| diag.established(local, remote));
        }
    }
    user_by(inode, own, peer, in_tables)
}

/// Whether both ends of `tcp` are on this machine, so that no network carries its bytes.
///
/// # Errors
/// The connection has ended.
pub fn is_within_machine(tcp: &TcpStream) -> std::io::Result<bool> {
    let (own, peer) = (tcp.local_addr()?.ip().to_canonical(), tcp.peer_addr()?.ip().to_canonical());
    Ok(peer.is_loopback() || peer == own)
}

/// The user of the socket at `peer` that is connected to the socket at `own`, whose inode is `own_inode`.
/// `established` finds an established socket by its own and its peer's address.
fn user_by(
    own_inode: u64,
    own: SocketAddr,
    peer: SocketAddr,
    established: impl Fn(SocketAddr, SocketAddr) -> std::io::Result<Option<TableEntry>>,
) -> Result<Option<u32>, PeerError> {
    for _ in 0..LOOKUPS_MAX {
        let first = established(peer, own)?;
        if established(own, peer)?.map(|entry| entry.inode) != Some(own_inode) {
            return Err(PeerError::Closed);
        }
        match (first, established(peer, own)?) {
            (Some(first), Some(again)) if first == again => return Ok(Some(first.uid)),
            (None, None) if !peer.ip().to_canonical().is_loopback() => return Ok(None),
            _ => {}
        }
    }
    Err(PeerError::Unknown)
}

/// The interface of the kernel that finds one socket.
struct SocketDiag(OwnedFd);

/// The kernel's answer about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FoundSocket {
    state: u8,
    entry: TableEntry,
}

impl SocketDiag {
    /// Bytes of a request and of an answer without attributes: a netlink header of 16 bytes, then
    /// `struct inet_diag_req_v2` or `struct inet_diag_msg` of `<linux/inet_diag.h>`.
    const REQUEST_BYTES: usize = 16 + 56;
    const ANSWER_BYTES: usize = 16 + 72;
    /// `SOCK_DIAG_BY_FAMILY`, the type of request and answer.
    const BY_FAMILY: u16 = 20;
    /// `NLM_F_REQUEST`.
    const REQUEST: u16 = 1;
    /// `IPPROTO_TCP`.
    const TCP: u8 = 6;
    /// `TCP_ESTABLISHED`.
    const ESTABLISHED: u8 = 1;

    fn open() -> std::io::Result<SocketDiag> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC);
        Ok(SocketDiag(socket_with(kind.0, kind.1, kind.2, Some(netlink::SOCK_DIAG))?))
    }

    fn established(&self, local: SocketAddr, remote: SocketAddr) -> std::io::Result<Option<TableEntry>> {
        let found = self.find(local, remote)?.filter(|socket| socket.state == SocketDiag::ESTABLISHED);
        Ok(found.map(|socket| socket.entry).filter(|entry| entry.inode != 0))
    }

    /// The socket at `local` that is connected to `remote`, in whatever state.
    fn find(&self, local: SocketAddr, remote: SocketAddr) -> std::io::Result<Option<FoundSocket>> {
        send(&self.0, &request(local, remote), SendFlags::empty())?;
        let mut answer = [0; 1024];
        // The kernel has answered when the request is sent.
        let (len, _) = recv(&self.0, &mut answer[..], RecvFlags::DONTWAIT)?;
        Ok(found_in(&answer[..len.min(answer.len())]))
    }
}

/// The question for the socket at `local` that is connected to `remote`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let (from, to) = (canonical(local), canonical(remote));
    let family = if from.0.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let scope = if let SocketAddr::V6(remote) = remote { remote.scope_id() } else { 0 };
    let mut out = Vec::with_capacity(SocketDiag::REQUEST_BYTES);
    out.extend((SocketDiag::REQUEST_BYTES as u32).to_ne_bytes());
    out.extend(SocketDiag::BY_FAMILY.to_ne_bytes());
    out.extend(SocketDiag::REQUEST.to_ne_bytes());
    // The sequence number and the sender, which nobody reads.
    out.extend([0; 8]);
    out.extend([family.as_raw() as u8, SocketDiag::TCP, 0, 0]);
    // The states, which count only where several sockets are asked for.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(from.1.to_be_bytes());
    out.extend(to.1.to_be_bytes());
    for ip in [from.0, to.0] {
        match ip {
            IpAddr::V4(ip) => {
                out.extend(ip.octets());
                out.extend([0; 12]);
            }
            IpAddr::V6(ip) => out.extend(ip.octets()),
        }
    }
    out.extend(scope.to_ne_bytes());
    // No cookie: whichever socket has these addresses.
    out.extend([0xff; 8]);
    out
}

/// The socket in an answer; none if the answer is an error.
fn found_in(answer: &[u8]) -> Option<FoundSocket> {
    let answer = answer.first_chunk::<{ SocketDiag::ANSWER_BYTES }>()?;
    let word = |at: usize| answer[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let is_socket = answer[4..6] == SocketDiag::BY_FAMILY.to_ne_bytes();
    let entry = TableEntry { uid: word(16 + 64)?, inode: word(16 + 68)?.into() };
    is_socket.then_some(FoundSocket { state: answer[16 + 1], entry })
}

/// Finds a socket in the tables. A kernel without IPv6 has one table.
fn in_tables(local: SocketAddr, remote: SocketAddr) -> std::io::Result<Option<TableEntry>> {
    let found = established_in(&std::fs::read_to_string(TABLES[0])?, local, remote);
    let other = || established_in(&std::fs::read_to_string(TABLES[1]).unwrap_or_default(), local, remote);
    Ok(found.or_else(other))
}

/// The socket at `local` that is connected to `remote`, if a process has it open; `table` is the text of
/// `/proc/net/tcp`.
fn established_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<TableEntry> {
    let same = |text: &str, address: SocketAddr| address_in(text).is_some_and(|found| found == canonical(address));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (from, to, state) = (words.next()?, words.next()?, words.next()?);
        // The columns of queues, timer and retries precede the user id, that of the timeout precedes the inode.
        let (uid, inode) = (words.nth(3)?, words.nth(1)?);
        let entry = TableEntry { uid: uid.parse().ok()?, inode: inode.parse().ok().filter(|inode| *inode != 0)? };
        (state == ESTABLISHED && same(from, local) && same(to, remote)).then_some(entry)
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Parses `0100007F:3039`: the address as 32-bit words in the machine's byte order, and the port.
fn address_in(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match ip.len() {
        8 => word(0)?.into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *chunk = word(at * 8)?;
            }
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener};

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:3039 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:3039 0100007F:D431 01 00000000:00000000 00:00000000 00000000     7        0 12 1 0 20 4 30 10 -1
   2: 0100007F:D431 0100007F:3039 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0 20 4 30 10 -1
   3: 0100007F:D433 0100007F:3039 05 00000000:00000000 03:00000000 00000000     0        0 0 3 0 20 4 30 10 -1
   4: 0100007F:D434 0100007F:3039 05 00000000:00000000 00:00000000 00000000  1000        0 14 1 0 20 4 30 10 -1
   5: 0100007F:D435 0100007F:3039 01 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   6: 0100007F:D436 0100007F:3039 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0 20 4 30 10 -1
";
    const TABLE6: &str = "  sl  local_address                         remote_address                        st ...
   0: 00000000000000000000000001000000:D431 00000000000000000000000001000000:3039 01 0:0 0:0 0 1001 0 3
   1: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:3039 01 0:0 0:0 0 1002 0 4
";

    fn uid_in(table: &str, local: &str, remote: &str) -> Option<u32> {
        let entry = established_in(table, local.parse().unwrap(), remote.parse().unwrap());
        entry.map(|entry| entry.uid)
    }

    #[test]
    fn the_peers_socket_has_the_user_id() {
        assert_eq!(uid_in(TABLE, "127.0.0.1:54321", "127.0.0.1:12345"), Some(1000));
        assert_eq!(uid_in(TABLE, "127.0.0.1:54322", "127.0.0.1:12345"), None);
        assert_eq!(uid_in(TABLE6, "[::1]:54321", "[::1]:12345"), Some(1001));
        assert_eq!(uid_in(TABLE6, "127.0.0.1:54322", "127.0.0.1:12345"), Some(1002));
    }

    #[test]
    fn a_socket_that_is_closed_has_no_user() {
        for port in 54323..=54326 {
            assert_eq!(uid_in(TABLE, &format!("127.0.0.1:{port}"), "127.0.0.1:12345"), None, "{port}");
        }
    }

    #[test]
    fn malformed_tables_give_no_user() {
        for table in ["", "\n\n", "x\n 0: zz:1 0:0 01 a b c d\n", "x\n0: 0100007F:D431\n", "x\n0: é:1 é:2 a b c d 5"]
        {
            assert_eq!(uid_in(table, "127.0.0.1:1", "127.0.0.1:2"), None);
        }
    }

    #[test]
    fn this_very_process_is_found_until_it_closes() {
        let me = rustix::process::getuid().as_raw();
        for own in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(own) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if own == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((host, port)).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let inode = fstat(&accepted).unwrap().st_ino;
            let here = accepted.local_addr().unwrap();
            let all = |peer| {
                let diag = SocketDiag::open().unwrap();
                let found = [local_user(&accepted, peer), user_by(inode, here, peer, in_tables)];
                let diag = user_by(inode, here, peer, |local, remote| diag.established(local, remote));
                found.into_iter().chain(DIAG_WORKS.load(Relaxed).then_some(diag))
            };
            assert!(all(peer).all(|found| found.unwrap() == Some(me)), "{own}");
            let elsewhere = "192.0.2.1:9".parse().unwrap();
            assert!(
                all(elsewhere).all(|found| matches!(found, Err(PeerError::Closed))),
                "another connection's address"
            );
            client.shutdown(Shutdown::Write).unwrap();
            assert!(all(peer).all(|found| matches!(found, Err(PeerError::Closed))));
            drop(client);
            assert!(all(peer).all(|found| matches!(found, Err(PeerError::Closed))));
        }
    }

    #[test]
    fn an_answer_that_is_none_has_no_socket() {
        let mut answer = [0; SocketDiag::ANSWER_BYTES];
        answer[4..6].copy_from_slice(&SocketDiag::BY_FAMILY.to_ne_bytes());
        assert!(found_in(&answer).is_some());
        assert_eq!(found_in(&answer[..SocketDiag::ANSWER_BYTES - 1]), None);
        answer[4..6].copy_from_slice(&2u16.to_ne_bytes());
        assert_eq!(found_in(&answer), None, "an error");
    }
}
