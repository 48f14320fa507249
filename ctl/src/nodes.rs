//! `gtctl invite` and `gtctl node`: other machines whose workers compute for the daemon.

use crate::host::host_of;
use crate::output::CommandOutput;
use crate::table::{Table, bytes, seconds};
use crate::time::date;
use gt_protocol::{NodeInfo, NodeLink, NodeState};
use serde_json::json;

/// The output of `gtctl invite` on the machine `host`: the line that joins, on a line of its own. `invited` are the
/// address at which the daemon listens, the fingerprint of its certificate, and the secret.
pub fn invited(
    (address, fingerprint, secret): (&str, &str, &str),
    expires_s: u64,
    workers: Option<u32>,
    host: &str,
) -> CommandOutput {
    let port = address.rsplit_once(':').map(|(_, port)| port).unwrap_or_default();
    let host = host_of(address, host);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let digits = fingerprint.strip_prefix("sha256:").unwrap_or(fingerprint);
    let join = format!("{host}:{port}:{digits}:{secret}");
    let limit = workers.map(|workers| format!(", with at most {workers} workers")).unwrap_or_default();
    let left = seconds(expires_s as f64);
    let text = format!(
        "gtd node --join {join}\n\nRun this on the other machine within {left}{limit}. It works once; that machine can join \
         again with the same line.\n"
    );
    let document = json!({
        "join": join, "address": address, "fingerprint": fingerprint, "expires_s": expires_s, "workers_max": workers
    });
    CommandOutput::new(text, &document)
}

/// The output of `gtctl node list`.
pub fn listed((nodes, links): &(Vec<NodeInfo>, Vec<NodeLink>)) -> CommandOutput {
    let mut text = if nodes.is_empty() { "no nodes\n".into() } else { table(nodes) };
    if !links.is_empty() {
        text.push_str(&format!("\n{}", link_table(links)));
    }
    CommandOutput::new(text, &json!({"nodes": nodes, "links": links}))
}

/// The table of links between machines.
pub fn link_table(links: &[NodeLink]) -> String {
    let mut table =
        Table::new(&[("LINK", false), ("BY", false), ("LATENCY", true), ("BANDWIDTH", true), ("WHY NOT UCX", false)]);
    let name = |machine: &str| if machine.is_empty() { "the daemon's machine".into() } else { machine.to_owned() };
    for NodeLink { from, to, transport, reason, latency_ns, bytes_per_s } in links {
        table.row(vec![
            format!("{} - {}", name(from), name(to)),
            transport.name().into(),
            latency(*latency_ns),
            bandwidth(*bytes_per_s),
            reason.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table.text()
}

/// The table of nodes.
pub fn table(nodes: &[NodeInfo]) -> String {
    let mut table = Table::new(&[
        ("NODE", false),
        ("STATE", false),
        ("ADDRESS", false),
        ("WORKERS", true),
        ("SENT", true),
        ("RECEIVED", true),
        ("RESUMED", true),
        ("LATENCY", true),
        ("BANDWIDTH", true),
        ("JOINED", false),
    ]);
    for node in nodes {
        let state = match node.state {
            NodeState::Up => "up",
            NodeState::Unreachable => "unreachable",
            NodeState::Away => "away",
        };
        table.row(vec![
            node.name.clone(),
            state.into(),
            node.address.clone().unwrap_or_else(|| "-".into()),
            node.workers.to_string(),
            bytes(node.sent_bytes),
            bytes(node.received_bytes),
            node.resumed.to_string(),
            latency(node.latency_ns),
            bandwidth(node.bytes_per_s),
            date(node.joined_s as f64),
        ]);
    }
    table.text()
}

/// A latency for people; `-` if it is not known.
fn latency(ns: u64) -> String {
    match ns {
        0 => "-".into(),
        1..1_000_000 => format!("{} µs", ns.div_ceil(1000)),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// A bandwidth for people; `-` if it is not known.
fn bandwidth(bytes_per_s: u64) -> String {
    if bytes_per_s == 0 { "-".into() } else { format!("{}/s", bytes(bytes_per_s)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::LinkTransport;

    #[test]
    fn an_invitation_is_one_line_to_paste() {
        let digits = "5f".repeat(32);
        let fingerprint = format!("sha256:{digits}");
        let text = invited(("0.0.0.0:12346", &fingerprint, "abc"), 3600, Some(4), "box").text;
        let line = text.lines().next().unwrap();
        assert_eq!(line, format!("gtd node --join box:12346:{digits}:abc"));
        assert!(text.contains("within 1 h 0 min, with at most 4 workers. It works once"), "{text}");
        let text = invited(("[fe80::1]:7", &fingerprint, "abc"), 60, None, "box").text;
        assert!(text.starts_with(&format!("gtd node --join [fe80::1]:7:{digits}:abc\n")), "{text}");
    }

    #[test]
    fn nodes_are_listed_with_their_links() {
        assert_eq!(listed(&(Vec::new(), Vec::new())).text, "no nodes\n");
        let node = NodeInfo {
            name: "box".into(),
            state: NodeState::Up,
            address: Some("10.0.0.7".into()),
            workers: 2,
            sent_bytes: 2048,
            received_bytes: 10,
            resumed: 3,
            latency_ns: 57_000,
            bytes_per_s: 1 << 30,
            joined_s: 0,
        };
        let away = NodeInfo { name: "left".into(), ..NodeInfo::default() };
        let lines = [
            "NODE  STATE  ADDRESS   WORKERS     SENT  RECEIVED  RESUMED  LATENCY  BANDWIDTH  JOINED\n",
            "box   up     10.0.0.7        2  2.0 KiB      10 B        3    57 µs  1.0 GiB/s  1970-01-01 00:00\n",
            "left  away   -               0      0 B       0 B        0        -          -  1970-01-01 00:00\n",
        ];
        let nodes = vec![node, away];
        assert_eq!(listed(&(nodes.clone(), Vec::new())).text, lines.concat());
        let link = NodeLink {
            from: "box".into(),
            to: "left".into(),
            transport: LinkTransport::Ucx,
            reason: None,
            latency_ns: 9_000,
            bytes_per_s: 5 << 30,
        };
        let reason = Some("this machine has no RDMA device".into());
        let plain = NodeLink { to: String::new(), transport: LinkTransport::Tls, reason, ..link.clone() };
        let links = [
            "\n",
            "LINK                        BY   LATENCY  BANDWIDTH  WHY NOT UCX\n",
            "box - left                  ucx     9 µs  5.0 GiB/s  -\n",
            "box - the daemon's machine  tls     9 µs  5.0 GiB/s  this machine has no RDMA device\n",
        ];
        assert_eq!(listed(&(nodes, vec![link, plain])).text, [lines.concat(), links.concat()].concat());
    }
}
