//! One rank of a group over the network, which measures what its standard input asks for; `benches/nodes.py` runs it.
//!
//! Its argument is a folder for its certificate; `on` or `ucx` may follow, so that bytes travel unencrypted by TCP or
//! by UCX. It prints its endpoint, reads its rank in the group, and joins. Each further line is a measurement in which
//! all ranks take part, and is answered with seconds: `all_reduce BYTES CALLS`; `message BYTES CALLS`, from rank 0 to
//! rank 1; `sockets BYTES CALLS`, the same over a plain blocking connection; `bare_all_reduce BYTES CALLS`, the least
//! that ranks 0 and 1 can do over one: each polls it, sends its half, adds to its own what comes, and sends the sums.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use gt_collectives::{Communicator, Reduce};
use gt_ops::DType;
use gt_protocol::InsecureNetwork;
use gtd::nodes::data_port::DataPort;
use gtd::nodes::endpoint::{DataSetup, Endpoint, NetworkRank};
use std::error::Error;
use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The plain connection between ranks 0 and 1. Rank 1 listens, and tells its port by a message.
fn plain_connection(group: &mut dyn Communicator) -> Result<Option<TcpStream>, Box<dyn Error>> {
    let mut port = [0; 2];
    let stream = match group.rank() {
        0 => {
            group.recv(&mut port, 1, DType::U8)?;
            TcpStream::connect(("127.0.0.1", u16::from_le_bytes(port)))?
        }
        1 => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            port = listener.local_addr()?.port().to_le_bytes();
            group.send(&port, 0, DType::U8)?;
            listener.accept()?.0
        }
        _ => return Ok(None),
    };
    stream.set_nodelay(true)?;
    Ok(Some(stream))
}

/// Up to so many bytes are exchanged whole, in one step instead of two.
const ONE_STEP_BYTES_MAX: usize = 64 << 10;

/// Sends and receives at the same time, and calls `came` with what has been received so far.
fn exchange(
    mut stream: &TcpStream,
    mut send: &[u8],
    receive: &mut [u8],
    mut came: impl FnMut(&[u8]),
) -> std::io::Result<()> {
    let mut received = 0;
    let some = |outcome: std::io::Result<usize>| match outcome {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        outcome => outcome,
    };
    while !send.is_empty() || received < receive.len() {
        if !send.is_empty() {
            send = &send[some(stream.write(send))?..];
        }
        if received < receive.len() {
            let count = match stream.read(&mut receive[received..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                outcome => some(outcome)?,
            };
            received += count;
            if count > 0 {
                came(&receive[..received]);
            }
        }
    }
    Ok(())
}

/// Adds the numbers of `from` to those of `to`.
fn add(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.as_chunks_mut().0.iter_mut().zip(from.as_chunks().0) {
        *to = (f32::from_ne_bytes(*to) + f32::from_ne_bytes(*from)).to_ne_bytes();
    }
}

/// An all-reduce of two ranks over a connection that does not block.
fn bare_all_reduce(stream: &TcpStream, rank: usize, buffer: &mut [u8], room: &mut Vec<u8>) -> std::io::Result<()> {
    room.resize(buffer.len(), 0);
    if buffer.len() <= ONE_STEP_BYTES_MAX {
        exchange(stream, buffer, room, |_| ())?;
        add(buffer, room);
        return Ok(());
    }
    let (low, high) = buffer.split_at_mut(buffer.len() / 8 * 4);
    let (own, theirs) = if rank == 0 { (low, high) } else { (high, low) };
    let mut added = 0;
    exchange(stream, theirs, &mut room[..own.len()], |came| {
        let whole = came.len() / 4 * 4;
        add(&mut own[added..whole], &came[added..whole]);
        added = whole;
    })?;
    exchange(stream, own, theirs, |_| ())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: network_group FOLDER [off|on|ucx]")?;
    let bind = "127.0.0.1".parse()?;
    let insecure_network: InsecureNetwork = std::env::args().nth(2).as_deref().unwrap_or("off").parse()?;
    let daemon_host = "127.0.0.1".into();
    let port = DataPort::open(DataSetup { folder: folder.clone().into(), bind, daemon_host, insecure_network })?;
    if let Some(why) = port.ucx_status().and_then(|ucx| ucx.why_not) {
        return Err(why.into());
    }
    let endpoint = Endpoint { machine: folder, host: Some("127.0.0.1".into()), ..port.endpoint().clone() };
    println!("{}", serde_json::to_string(&endpoint)?);
    let mut lines = std::io::stdin().lock().lines();
    let rank: NetworkRank = serde_json::from_str(&lines.next().ok_or("no rank")??)?;
    let mut group = port.join(&rank, PATIENCE)?;
    let mut plain = plain_connection(&mut group)?;
    let (mut buffer, mut room) = (Vec::new(), Vec::new());
    for line in lines {
        let line = line?;
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).ok_or("a number is missing");
        let (bytes, calls) = (number()?, number()?);
        buffer.resize(bytes, 0);
        group.barrier()?;
        let begun = Instant::now();
        match (what, group.rank(), &mut plain) {
            ("all_reduce", ..) => {
                for _ in 0..calls {
                    group.all_reduce(&mut buffer, DType::F32, Reduce::Sum)?;
                }
            }
            ("message", 0, _) => {
                for _ in 0..calls {
                    group.send(&buffer, 1, DType::U8)?;
                }
                group.recv(&mut [0], 1, DType::U8)?;
            }
            ("message", 1, _) => {
                for _ in 0..calls {
                    group.recv(&mut buffer, 0, DType::U8)?;
                }
                group.send(&[0], 0, DType::U8)?;
            }
            ("sockets", 0, Some(stream)) => {
                for _ in 0..calls {
                    stream.write_all(&buffer)?;
                }
                stream.read_exact(&mut [0])?;
            }
            ("sockets", 1, Some(stream)) => {
                for _ in 0..calls {
                    stream.read_exact(&mut buffer)?;
                }
                stream.write_all(&[0])?;
            }
            ("bare_all_reduce", rank, Some(stream)) => {
                stream.set_nonblocking(true)?;
                for _ in 0..calls {
                    bare_all_reduce(stream, rank, &mut buffer, &mut room)?;
                }
                stream.set_nonblocking(false)?;
            }
            ("message" | "sockets" | "bare_all_reduce", ..) => {}
            _ => return Err(format!("`{what}` is no measurement").into()),
        }
        println!("{}", begun.elapsed().as_secs_f64() / calls as f64);
    }
    Ok(())
}
