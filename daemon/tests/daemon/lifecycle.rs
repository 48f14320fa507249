//! The start and end of a daemon, and its cleanup after clients that have gone.

use crate::support::{Client, DEADLINE, Folder, Gtd, Private, eventually, f32s, wait};
use gt_ops::wire::Command;
use gt_ops::{Op, Operand};
use gt_protocol::{Hello, PROTOCOL_VERSION, ProtocolError, RefusalCode, Role, connect_over};
use gt_shm::{SessionState, Socket};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

#[test]
fn a_private_daemon_lives_as_long_as_its_clients() {
    let mut private = Private::start();
    let hello = Hello::new(Role::Client, None);
    let mut first = Client::of(connect_over(private.socket, &hello).unwrap());
    let mut second = Client::connect(&private.name);
    assert_eq!(first.welcome.daemon_pid, second.welcome.daemon_pid);
    // Ctrl-C in the client's terminal must not reach the daemon.
    let pid = nix::unistd::Pid::from_raw(private.child.id() as i32);
    assert_eq!(nix::unistd::getsid(Some(pid)), Ok(pid));
    let one = first.full(&[1], 1.0);
    assert_eq!(first.fetch_f32(one, 1).unwrap(), [1.0]);
    drop(first);
    let two = second.full(&[1], 2.0);
    assert_eq!(second.fetch_f32(two, 1).unwrap(), [2.0]);
    assert!(private.child.try_wait().unwrap().is_none());
    drop(second);
    assert!(wait(&mut private.child).success());
    assert!(Socket::connect(&private.name).is_err());
}

#[test]
fn a_private_daemon_ends_if_its_client_never_says_hello() {
    let Private { mut child, socket, .. } = Private::start();
    drop(socket);
    assert!(wait(&mut child).success());
}

#[test]
fn a_private_daemon_ends_when_its_client_is_killed() {
    for mode in ["private-silent", "private-computing"] {
        let mut victim = Victim::start(mode, "");
        let daemon: u32 = victim.line().parse().unwrap();
        victim.kill();
        eventually("the private daemon ends", || !is_alive(daemon));
    }
}

fn is_alive(pid: u32) -> bool {
    // A zombie has ended, too.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[test]
fn a_daemon_is_silent_and_has_a_version() {
    let output = Program::new(crate::support::gtd_path()).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("gtd {}\n", env!("CARGO_PKG_VERSION")));
    let mut gtd = Gtd::start(&[]);
    let mut client = gtd.client();
    let one = client.full(&[1], 1.0);
    client.fetch_f32(one, 1).unwrap();
    drop(client);
    gtd.signal(Signal::SIGTERM);
    assert!(gtd.wait().success());
    assert_eq!(gtd.stderr(), "");
}

#[test]
fn a_signal_ends_the_daemon_after_queued_steps_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut gtd = Gtd::start(&[]);
        let mut client = gtd.client();
        let a = client.full(&[1024, 1024], 1.0);
        let product = client.binary(Op::Matmul, a, a);
        let block = client.block(4);
        let token = client.token();
        let to = crate::support::range(&block, 4);
        client.send(&Command::Fetch { token, id: product, offset_bytes: 0, to });
        eventually("the fetch was taken in", || gtd.status().sessions[0].instructions == 3);
        gtd.signal(signal);
        client.completion(token).unwrap();
        let mut bytes = [0; 4];
        block.read(&mut bytes);
        assert_eq!(f32::from_le_bytes(bytes), 1024.0);
        client.wait_closed();
        assert!(gtd.wait().success());
        let left: Vec<_> = std::fs::read_dir(&gtd.folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["stderr"]);
    }
}

#[test]
fn a_dead_daemons_socket_is_taken_over_and_a_living_ones_is_not() {
    let mut gtd = Gtd::start(&[]);
    let mut second = Gtd::spawn(&gtd.folder, &[], &[]);
    assert!(!wait(&mut second).success());
    assert!(gtd.stderr().contains("a gtd is already listening on"), "{}", gtd.stderr());
    gtd.client();
    gtd.child.kill().unwrap();
    gtd.wait();
    assert!(gtd.folder.socket().exists());
    gtd.child = Gtd::spawn(&gtd.folder, &[], &[]);
    gtd.wait_listening();
    gtd.client();
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = Folder::new();
    let socket = folder.0.join("none").join("gtd.sock");
    let output = Program::new(crate::support::gtd_path()).arg("--socket").arg(&socket).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("none/gtd.sock") && said.contains("--socket"), "{said}");
}

#[test]
fn another_protocol_version_is_refused_by_name() {
    let gtd = Gtd::start(&[]);
    let hello = Hello { protocol_version: PROTOCOL_VERSION + 1, ..Hello::new(Role::Client, None) };
    let socket = Socket::connect(&gtd.folder.socket()).unwrap();
    let Err(ProtocolError::Refused(refused)) = connect_over(socket, &hello) else { panic!("not refused") };
    assert_eq!(refused.code, RefusalCode::ProtocolVersion);
    assert!(refused.text.contains("upgrade the daemon"), "{refused}");
    gtd.client();
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let gtd = Gtd::start(&[]);
    let before = gtd.descriptors();
    let silent = Socket::connect(&gtd.folder.socket()).unwrap();
    eventually("the daemon hangs up", || silent.is_hung_up());
    eventually("its descriptors are closed", || gtd.descriptors() == before);
}

#[test]
fn a_user_has_so_many_sessions_and_no_more() {
    let gtd = Gtd::start(&[]);
    let mut clients = Vec::new();
    let refused = loop {
        match gt_protocol::connect(&gtd.folder.socket(), &Hello::new(Role::Client, None)) {
            Ok(connection) => clients.push(Client::of(connection)),
            Err(ProtocolError::Refused(refused)) => break refused,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(refused.code, RefusalCode::TooManySessions);
    assert_eq!(clients.len() as u32, gt_protocol::limits::SESSIONS_PER_UID_MAX);
    assert_eq!(refused.held, clients.len() as u64);
    for client in &mut clients {
        let one = client.full(&[1], 1.0);
        assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    }
    drop(clients);
    eventually("the sessions end", || gtd.status().sessions.is_empty());
    gtd.client();
}

#[test]
fn a_hundred_idle_clients_take_little_memory() {
    let gtd = Gtd::start(&[]);
    let mut clients: Vec<_> = (0..100).map(|_| gtd.client()).collect();
    for client in &mut clients {
        let one = client.full(&[1], 1.0);
        assert_eq!(client.fetch_f32(one, 1).unwrap(), [1.0]);
    }
    let resident = gtd.resident_bytes();
    assert!(resident < 50 << 20, "{resident} bytes are resident");
}

#[test]
fn clients_killed_at_any_instant_leave_nothing() {
    let gtd = Gtd::start(&[]);
    let mut survivor = gtd.client();
    let kept = survivor.full(&[4], 5.0);
    survivor.sync();
    let settled = || {
        let status = gtd.status();
        (status.sessions.len() == 1).then(|| (gtd.descriptors(), gtd.segments(), status.workers[0].memory_bytes))
    };
    let before = settled().unwrap();
    for round in 0..100 {
        let mode = ["silent", "computing", "half-said", "uploading"][round % 4];
        let mut victim = Victim::start(mode, gtd.folder.socket().to_str().unwrap());
        victim.line();
        // The delay waits for no event: it makes each victim die at another instant.
        std::thread::sleep(Duration::from_micros(137 * (round as u64 % 11)));
        victim.kill();
    }
    eventually("everything is as before", || settled() == Some(before));
    let sum = survivor.binary(Op::Add, kept, kept);
    assert_eq!(survivor.fetch_f32(sum, 4).unwrap(), [10.0; 4]);
}

#[test]
fn memory_of_a_session_comes_back_when_it_ends() {
    let gtd = Gtd::start(&["--memory", "64M"]);
    for _ in 0..10 {
        let mut client = gtd.client();
        let big = client.full(&[10 << 20], 1.0);
        assert_eq!(client.fetch_f32(big, 1).unwrap(), [1.0], "the session before still holds its memory");
        drop(client);
        eventually("the session ends", || gtd.status().sessions.is_empty());
    }
    eventually("its memory comes back", || gtd.status().workers[0].memory_bytes == 0);
}

// ------------------------------------------------------------------------ clients that are killed

/// A client process that acts by its mode until it is killed.
struct Victim {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Victim {
    fn start(mode: &str, socket: &str) -> Victim {
        let mut child = Program::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifecycle::victim", "--ignored", "--nocapture", "--test-threads=1"])
            .env("GT_TEST_VICTIM", mode)
            .env("GT_TEST_SOCKET", socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Victim { child, lines }
    }

    /// The line that the victim prints when it has begun.
    fn line(&mut self) -> String {
        for line in self.lines.by_ref().lines() {
            let line = line.unwrap();
            // The test harness prints text before it, without a line end.
            if let Some((_, said)) = line.split_once("victim: ") {
                return said.to_string();
            }
        }
        panic!("the victim ended by itself");
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // A victim's private daemon has a standard output of its own, so nothing else holds the pipe.
        let mut rest = String::new();
        let _ = self.lines.read_to_string(&mut rest);
    }
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn victim() {
    let mode = std::env::var("GT_TEST_VICTIM").unwrap();
    let socket = PathBuf::from(std::env::var("GT_TEST_SOCKET").unwrap());
    let forever = || std::thread::sleep(DEADLINE);
    match mode.as_str() {
        "silent" => {
            let _socket = Socket::connect(&socket).unwrap();
            println!("victim: ready");
            forever();
        }
        "half-said" => {
            let mut client = Client::connect(&socket);
            let parts: Vec<_> = (0..20).map(|_| Operand::Tensor(client.full(&[1], 0.0))).collect();
            let out = client.id();
            let inputs = gt_ops::Inputs::from_slice(&parts);
            let attrs = gt_ops::Attrs::Axis(0);
            let cat = gt_ops::Instruction { op: Op::Cat, out, inputs, last_use: 0, attrs, tf32: false, replaces: None };
            let slots = client.encoder.instruction(&cat).to_vec();
            client.send_slots(&slots[..2]);
            println!("victim: ready");
            forever();
        }
        "computing" => compute(Client::connect(&socket)),
        "uploading" => {
            let mut client = Client::connect(&socket);
            println!("victim: ready");
            let bytes = vec![1; 8 << 20];
            loop {
                let id = client.upload(f32s(&[2 << 20]), &bytes);
                client.fetch(id, 8 << 20).unwrap();
            }
        }
        "private-silent" => {
            let private = Private::start();
            println!("victim: {}", private.child.id());
            forever();
        }
        "private-computing" => {
            let private = Private::start();
            println!("victim: {}", private.child.id());
            compute(Client::of(connect_over(private.socket, &Hello::new(Role::Client, None)).unwrap()));
        }
        other => panic!("{other}"),
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn compute(mut client: Client) {
    println!("victim: ready");
    let a = client.full(&[300, 300], 0.5);
    let mut round = 0u64;
    while client.port.state() == SessionState::Running {
        let b = client.binary(Op::Matmul, a, a);
        let c = client.binary(Op::Add, a, b);
        round += 1;
        if round.is_multiple_of(8) {
            client.fetch_f32(c, 1).unwrap();
        }
        client.free(&[b]);
    }
}
