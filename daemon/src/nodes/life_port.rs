//! Ports by which other machines see that a process has ended: it listens as long as it lives, and its kernel refuses
//! connections from then on.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The timeout of an attempt to connect.
const PROBE_DEADLINE: Duration = Duration::from_millis(500);
/// The sleep after a failed accept, for example when no descriptors are left.
const ACCEPT_NAP: Duration = Duration::from_millis(100);

/// Listens at a port of this machine's address `bind` until this process ends, and says nothing there. Returns the
/// port.
///
/// # Errors
/// The address cannot be listened at, or no thread can be started.
pub fn open(bind: IpAddr) -> std::io::Result<u16> {
    let listener = TcpListener::bind(SocketAddr::new(bind, 0))?;
    let port = listener.local_addr()?.port();
    let accept = move || loop {
        if listener.accept().is_err() {
            std::thread::sleep(ACCEPT_NAP);
        }
    };
    std::thread::Builder::new().name("gt-life".into()).spawn(accept)?;
    Ok(port)
}

/// Whether the process that listens at `address` can be reached.
pub fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PROBE_DEADLINE).is_ok()
}

/// Whether the process that has listened at `address` has ended. One that cannot be reached may live.
pub fn has_ended(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PROBE_DEADLINE)
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_while_its_port_is_open() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let address = SocketAddr::new(loopback, open(loopback).unwrap());
        assert!(is_open(address) && !has_ended(address));
        let closed = TcpListener::bind((loopback, 0)).unwrap().local_addr().unwrap();
        assert!(!is_open(closed) && has_ended(closed));
    }
}
