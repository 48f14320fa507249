//! One rank of a group over the network, which measures what its standard input asks for; `benches/nodes.py` runs it.
//!
//! Its argument is a folder for its certificate; `on` or `ucx` may follow, so that bytes travel unencrypted by TCP or
//! by UCX. It prints its endpoint, reads its rank in the group, and joins. Each further line is a measurement in which
//! all ranks take part, and is answered with seconds: `all_reduce BYTES CALLS`; `message BYTES CALLS`, from rank 0 to
//! rank 1; `sockets BYTES CALLS`, the same over a plain blocking connection.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use gt_collectives::{Communicator, Reduce};
use gt_ops::DType;
use gt_protocol::InsecureNetwork;
use gtd::nodes::data_port::DataPort;
use gtd::nodes::endpoint::{DataSetup, Endpoint, NetworkRank};
use std::error::Error;
use std::io::{BufRead, Read, Write};
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
    let mut buffer = Vec::new();
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
            ("message" | "sockets", ..) => {}
            _ => return Err(format!("`{what}` is no measurement").into()),
        }
        println!("{}", begun.elapsed().as_secs_f64() / calls as f64);
    }
    Ok(())
}
