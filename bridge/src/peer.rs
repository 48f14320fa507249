//! The user at the other end of a TCP connection within this machine, by the kernel's table of sockets.

use std::net::{IpAddr, SocketAddr};

/// The user id of connections from other machines and from other network namespaces: Linux's `nobody`.
pub const NOBODY: u32 = 65534;

/// The user id at the other end of a connection from `peer` to `own`.
pub fn uid(own: SocketAddr, peer: SocketAddr) -> u32 {
    if !peer.ip().to_canonical().is_loopback() {
        return NOBODY;
    }
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let texts = tables.into_iter().filter_map(|table| std::fs::read_to_string(table).ok());
    texts.filter_map(|text| uid_in(&text, own, peer)).next().unwrap_or(NOBODY)
}

/// The user id of the socket at `peer` that is connected to `own`; `table` is the text of `/proc/net/tcp`.
fn uid_in(table: &str, own: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let same = |text: &str, address: SocketAddr| address_in(text).is_some_and(|found| found == canonical(address));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        // The state, queue, timer and retry columns precede the user id.
        let uid = words.nth(4)?;
        (same(local, peer) && same(remote, own)).then(|| uid.parse().ok())?
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

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:3039 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:3039 0100007F:D431 01 00000000:00000000 00:00000000 00000000     7        0 2 1 0 20 4 30 10 -1
   2: 0100007F:D431 0100007F:3039 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
";
    const TABLE6: &str = "  sl  local_address                         remote_address                        st ...
   0: 00000000000000000000000001000000:D431 00000000000000000000000001000000:3039 01 0:0 0:0 0 1001 0 3
   1: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:3039 01 0:0 0:0 0 1002 0 3
";

    #[test]
    fn the_peers_socket_has_the_user_id() {
        let own = "127.0.0.1:12345".parse().unwrap();
        assert_eq!(uid_in(TABLE, own, "127.0.0.1:54321".parse().unwrap()), Some(1000));
        assert_eq!(uid_in(TABLE, own, "127.0.0.1:54322".parse().unwrap()), None);
        assert_eq!(uid_in(TABLE6, "[::1]:12345".parse().unwrap(), "[::1]:54321".parse().unwrap()), Some(1001));
        assert_eq!(uid_in(TABLE6, own, "127.0.0.1:54322".parse().unwrap()), Some(1002));
    }

    #[test]
    fn malformed_tables_give_no_user() {
        for table in ["", "\n\n", "x\n 0: zz:1 0:0 01 a b c d\n", "x\n0: 0100007F:D431\n", "x\n0: é:1 é:2 a b c d 5"]
        {
            assert_eq!(uid_in(table, "127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()), None);
        }
    }

    #[test]
    fn this_very_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = uid(listener.local_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(found, rustix::process::getuid().as_raw());
        assert_eq!(uid(listener.local_addr().unwrap(), "8.8.8.8:53".parse().unwrap()), NOBODY);
    }
}
