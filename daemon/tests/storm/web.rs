//! Attacks on the page and the metrics by HTTP.

use crate::attacks::{PATIENCE, breach, count, garbled};
use crate::streams::Dice;
use crate::tcp::{Attack, Port};
use std::io::{Read, Write};
use std::net::TcpStream;

pub const ATTACKS: [(&str, Attack); 5] = [
    ("http-asks-for-everything", asks_for_everything),
    ("http-never-ends-a-request", never_ends),
    ("http-garbles", garbles),
    ("http-reads-nothing", reads_nothing),
    ("http-guesses-tokens", guesses_tokens),
];

const PATHS: [&str; 8] =
    ["/", "/metrics", "/api/daemon", "/api/history?after=0", "/api/you", "/api/sessions/1", "/api/sessions/-1", "//.."];
/// Connections of a crowd, more than the daemon keeps.
const CROWD: u64 = 200;
/// Requests on one connection.
const REQUESTS: u64 = 50;

fn request(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n").into_bytes()
}

/// The answer to a request that closes the connection; none if the daemon has closed it before.
fn answer(port: &Port, path: &str, more: &str) -> Option<String> {
    let mut tcp = port.dial()?;
    tcp.write_all(&request(path, &format!("{more}Connection: close\r\n"))).ok()?;
    let mut text = String::new();
    tcp.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 ").then_some(text)
}

/// Reads the metrics, which must be whole.
pub fn scrape(port: &Port) -> Option<String> {
    let text = answer(port, "/metrics", "Accept: application/openmetrics-text\r\n")?;
    (text.starts_with("HTTP/1.1 200 ") && text.ends_with("# EOF\n")).then_some(text)
}

fn asks_for_everything(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let path = dice.pick(&PATHS);
        match answer(port, path, "") {
            Some(text) if text.starts_with("HTTP/1.1 500") => breach("an error of the server"),
            Some(text) if path.starts_with("/api/sessions") && text.starts_with("HTTP/1.1 200") => {
                breach("details without a token");
            }
            Some(_) => count("pages_read"),
            None => {}
        }
    }
}

/// Opens a crowd of connections, whose requests arrive byte by byte and have no end.
fn never_ends(port: &Port, dice: &mut Dice<'_>) {
    let mut crowd: Vec<TcpStream> = (0..1 + dice.below(CROWD)).filter_map(|_| port.dial()).collect();
    let endless = request("/metrics", &"X-More: of it\r\n".repeat(10_000));
    for byte in endless.chunks(1) {
        crowd.retain_mut(|tcp| tcp.write_all(byte).is_ok());
        count("bytes_dribbled");
        if crowd.is_empty() {
            return;
        }
    }
}

fn garbles(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let Some(mut tcp) = port.dial() else { continue };
        let bytes = garbled(request(dice.pick(&PATHS), "Accept: */*\r\nContent-Length: 3\r\n"), dice);
        let _ = tcp.set_read_timeout(Some(PATIENCE));
        let _ = tcp.write_all(&bytes);
        let _ = tcp.read(&mut [0; 4096]);
        count("requests_garbled");
    }
}

/// Asks again and again on one connection, and reads no answer.
fn reads_nothing(port: &Port, dice: &mut Dice<'_>) {
    let mut deaf = Vec::new();
    loop {
        let Some(mut tcp) = port.dial() else { continue };
        let _ = tcp.set_write_timeout(Some(PATIENCE));
        let path = dice.pick(&PATHS);
        let _ = (0..REQUESTS).all(|_| tcp.write_all(&request(path, "")).is_ok());
        count("answers_unread");
        deaf.push(tcp);
        if deaf.len() as u64 > CROWD {
            deaf.clear();
        }
    }
}

fn guesses_tokens(port: &Port, dice: &mut Dice<'_>) {
    loop {
        let guess = format!("Authorization: Bearer gt-{}-{:016x}\r\n", dice.below(9), dice.word());
        if answer(port, "/api/sessions/1", &guess).is_some_and(|text| text.starts_with("HTTP/1.1 200")) {
            breach("a guessed token shows a session");
        }
        count("page_tokens_guessed");
    }
}
