//! The user at the other end of a TCP connection within this machine, by the kernel's tables of sockets.
//!
//! A table shows user 0 for a socket that its process has closed, so only an entry in the state ESTABLISHED counts, and
//! only one that has the same inode when it is read again: the kernel writes the columns of a line one after the other,
//! and the process may close its socket in between. The addresses may belong to another socket as soon as this end of
//! the connection is closed, so this end must be ESTABLISHED when the entry is read again.

use rustix::fs::fstat;
use std::net::{IpAddr, SocketAddr, TcpStream};

/// The kernel's tables of sockets in this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state ESTABLISHED as a table shows it.
const ESTABLISHED: &str = "01";
/// How often an entry is looked up that is not found: sockets that come and go can hide one from a reader.
const LOOKUPS_MAX: usize = 4;

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
    for _ in 0..LOOKUPS_MAX {
        let first = established(&tables()?, peer, own);
        let again = tables()?;
        if established(&again, own, peer).map(|entry| entry.inode) != Some(inode) {
            return Err(PeerError::Closed);
        }
        match (first, established(&again, peer, own)) {
            (Some(first), Some(again)) if first == again => return Ok(Some(first.uid)),
            (None, None) if !peer.ip().to_canonical().is_loopback() => return Ok(None),
            _ => {}
        }
    }
    Err(PeerError::Unknown)
}

/// The texts of the tables. A kernel without IPv6 has one table.
fn tables() -> std::io::Result<Vec<String>> {
    let texts: Vec<_> = TABLES.into_iter().map(std::fs::read_to_string).collect();
    if texts.iter().any(Result::is_ok) {
        Ok(texts.into_iter().flatten().collect())
    } else {
        texts.into_iter().collect()
    }
}

/// The socket at `local` that is connected to `remote`, if a process has it open; `tables` are texts of
/// `/proc/net/tcp`.
fn established(tables: &[String], local: SocketAddr, remote: SocketAddr) -> Option<TableEntry> {
    let same = |text: &str, address: SocketAddr| address_in(text).is_some_and(|found| found == canonical(address));
    tables.iter().flat_map(|table| table.lines().skip(1)).find_map(|line| {
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
        let entry = established(&[table.into()], local.parse().unwrap(), remote.parse().unwrap());
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        assert_eq!(local_user(&accepted, peer).unwrap(), Some(rustix::process::getuid().as_raw()));
        let elsewhere = "192.0.2.1:9".parse().unwrap();
        assert!(matches!(local_user(&accepted, elsewhere), Err(PeerError::Closed)), "another connection's address");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(matches!(local_user(&accepted, peer), Err(PeerError::Closed)));
        drop(client);
        assert!(matches!(local_user(&accepted, peer), Err(PeerError::Closed)));
    }
}
