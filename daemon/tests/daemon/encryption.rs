//! Sessions by TCP with TLS: they compute as others do, and only with the daemon that the address names.

use crate::support::{Client, Folder, Gtd, eventually, f32s};
use gt_bridge::client_end::{TcpSession, connect};
use gt_bridge::handshake::ConnectError;
use gt_bridge::token::{TOKEN_ENV, Token};
use gt_ops::Op;
use gt_protocol::address::{Fingerprint, TcpAddress, TcpSecurity};
use gt_protocol::{Hello, Role};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const TOKEN: &str = "0123456789abcdef";

/// A daemon with a certificate of its own, its port, and the certificate's fingerprint.
fn daemon() -> (Gtd, u16, Fingerprint) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = Folder::new();
    let state = folder.0.join("state").display().to_string();
    let gtd = Gtd::start_in(folder, &["--state", &state, "--listen", &port.to_string()], &[(TOKEN_ENV, TOKEN)]);
    // The status names the port before it is served.
    eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let fingerprint = gtd.status().tcp.and_then(|tcp| tcp.fingerprint).unwrap().parse().unwrap();
    (gtd, port, fingerprint)
}

fn session(port: u16, security: TcpSecurity) -> Result<TcpSession, ConnectError> {
    let address = TcpAddress { host: "127.0.0.1".into(), port, security };
    connect(&address, &Token::new(TOKEN, "").unwrap(), Hello::new(Role::Client, None))
}

#[test]
fn a_session_computes_with_tls() {
    let (gtd, port, fingerprint) = daemon();
    let security = TcpSecurity::Tls(Some(fingerprint));
    let mut client = Client::of(session(port, security).unwrap().connection);
    // Longer than a frame, and no multiple of a record of TLS.
    let values: Vec<f32> = (0..300_001).map(|n| n as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let uploaded = client.upload(f32s(&[values.len()]), &bytes);
    let doubled = client.binary(Op::Add, uploaded, uploaded);
    let expected: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
    assert!(client.fetch_f32(doubled, values.len()).unwrap() == expected);
    let mut sum = uploaded;
    for _ in 0..1000 {
        let next = client.binary(Op::Add, sum, uploaded);
        if sum != uploaded {
            client.free(&[sum]);
        }
        sum = next;
    }
    assert_eq!(client.fetch_f32(sum, 3).unwrap(), [0.0, 1001.0, 2002.0]);
    drop(client);
    eventually("the session has ended", || gtd.status().sessions.is_empty());
}

#[test]
fn another_certificate_is_refused_and_nobody_else_notices() {
    let (gtd, port, fingerprint) = daemon();
    let mut other = Client::of(session(port, TcpSecurity::ThisMachine).unwrap().connection);
    let mut wrong = fingerprint;
    wrong.0[31] ^= 1;
    let error = session(port, TcpSecurity::Tls(Some(wrong))).err().unwrap();
    assert!(
        matches!(error, ConnectError::WrongCertificate { shown: Some(shown), .. } if shown == fingerprint),
        "{error}"
    );
    // Bytes that are no handshake, or that are half of one, end their own connection alone.
    for bytes in [&b"\x16\x03\x01\x00\x04junk"[..], b"\x16\x03\x01\x02\x00\x01\x00", &[22; 70_000]] {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
        tcp.write_all(bytes).unwrap();
        // The daemon closes it, after an alert if it can; a reset is an end as well.
        let _ = tcp.read_to_end(&mut Vec::new());
    }
    eventually("the log says so", || gtd.stderr().contains("TLS with 127.0.0.1:"));
    let one = other.full(&[1], 1.0);
    assert_eq!(other.fetch_f32(one, 1).unwrap(), [1.0]);
    assert_eq!(gtd.status().sessions.len(), 1);
}

#[test]
fn a_service_without_tls_is_found_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // As a daemon of an earlier version does, and another service.
    for answer in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut tcp, _) = listener.accept().unwrap();
                let _ = tcp.read(&mut [0; 1 << 14]);
                tcp.write_all(answer).unwrap();
            });
            session(port, TcpSecurity::Tls(Some(Fingerprint([0; 32])))).err().unwrap()
        });
        assert!(matches!(error, ConnectError::NoTls(_)), "{error}");
    }
}
