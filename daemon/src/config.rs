//! The command line of `gtd`.

use clap::Parser;
use std::path::PathBuf;
use std::str::FromStr;

/// The GT daemon: owns this machine's devices and computes for any process that connects.
#[derive(Debug, Parser)]
#[command(name = "gtd", version)]
pub struct Config {
    /// Workers to run: `cpu:N` is N workers on the processor.
    #[arg(long, default_value = "cpu:1", value_name = "KIND:N")]
    pub workers: Workers,

    /// Threads that compute, all workers together [default: one a core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,

    /// Bytes that tensors may take, all workers together, as in 512M or 8G [default: three quarters of the machine's].
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,

    /// Where clients connect; a name that starts with @ is abstract [default: $GT_SOCKET or /run/gt/gtd.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Writes a line an event to this new file.
    #[arg(long, value_name = "PATH", env = "GT_INSTRUCTION_LOG")]
    pub instruction_log: Option<PathBuf>,

    /// Serves the client on --client-fd and its children, and ends with the last of them.
    #[arg(long, hide = true, requires = "client_fd")]
    pub private: bool,

    /// The connected socket of a private daemon's first client.
    #[arg(long, hide = true, requires = "private", value_name = "FD")]
    #[arg(value_parser = clap::value_parser!(i32).range(0..))]
    pub client_fd: Option<i32>,

    /// The abstract name at which a private daemon's further clients connect.
    #[arg(long, hide = true, requires = "private", value_name = "@NAME", value_parser = abstract_name)]
    pub name: Option<PathBuf>,
}

fn abstract_name(text: &str) -> Result<PathBuf, String> {
    if text.starts_with("@gt-") { Ok(text.into()) } else { Err("an abstract name starts with @gt-".into()) }
}

/// Which workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// On the processor.
    pub cpu: u32,
}

/// Workers of one kind, at most.
const WORKERS_MAX: u32 = 64;

impl FromStr for Workers {
    type Err = String;
    fn from_str(text: &str) -> Result<Workers, String> {
        let count = match text.split_once(':') {
            Some(("cpu", count)) => count.parse().map_err(|_| format!("`{count}` is no number of workers"))?,
            None if text == "cpu" => 1,
            _ => return Err(format!("`{text}`: this version has workers of the kind `cpu`, as in cpu:1")),
        };
        if (1..=WORKERS_MAX).contains(&count) {
            Ok(Workers { cpu: count })
        } else {
            Err(format!("{count} workers were asked for; 1 to {WORKERS_MAX} are possible"))
        }
    }
}

/// A number of bytes, written with a suffix K, M, G or T (of 1024) or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Bytes, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("`{text}` is no number of bytes: write 512M or 8G")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no number of bytes: write 512M or 8G"))?;
        number
            .checked_shl(shift)
            .filter(|bytes| bytes >> shift == number)
            .map(Bytes)
            .ok_or_else(|| format!("`{text}` is more than any machine has"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_suffixes() {
        for (text, bytes) in [("512", 512), ("3K", 3 << 10), ("512M", 512 << 20), ("8G", 8 << 30), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        for text in ["", "G", "1X", "-1", "99999999T", "1.5G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn workers_name_their_kind() {
        assert_eq!("cpu:2".parse(), Ok(Workers { cpu: 2 }));
        assert_eq!("cpu".parse(), Ok(Workers { cpu: 1 }));
        for text in ["", "cpu:0", "cpu:x", "tpu:1", "cpu:65"] {
            assert!(text.parse::<Workers>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_private_daemon_needs_its_client() {
        assert!(Config::try_parse_from(["gtd", "--private"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "elsewhere"]).is_err());
        assert!(Config::try_parse_from(["gtd", "--private", "--client-fd", "3", "--name", "@gt-x"]).is_ok());
    }
}
