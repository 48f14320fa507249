//! The daemon as a service: its configuration file, its state folder, and its protocol with systemd.

use crate::support::{Client, Folder, Gtd, eventually, gtd_path, wait};
use gt_ops::Op;
use gt_protocol::{Hello, ProtocolError, RefusalCode, Role, ask_limits, ask_reload, connect};
use gt_shm::Socket;
use nix::sys::signal::Signal;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

fn configured(text: &str, arguments: &[&str]) -> Gtd {
    let folder = Folder::new();
    std::fs::write(folder.0.join("gtd.yaml"), text).unwrap();
    let arguments: Vec<&str> = ["--config", "gtd.yaml"].iter().chain(arguments).copied().collect();
    Gtd::start_in(folder, &arguments, &[])
}

fn configure(gtd: &Gtd, text: &str) {
    std::fs::write(gtd.folder.0.join("gtd.yaml"), text).unwrap();
}

fn control(gtd: &Gtd) -> Socket {
    connect(&gtd.folder.socket(), &Hello::new(Role::Control, None)).unwrap().socket
}

#[test]
fn a_file_is_weaker_than_the_command_line_and_stronger_than_defaults() {
    let gtd = configured("threads: 3\nmemory: 64M\nlimits: {sessions: 5}\n", &["--threads", "1"]);
    let status = gtd.status();
    assert_eq!((status.workers[0].threads, status.workers[0].memory_bytes_limit), (1, 64 << 20));
    assert_eq!(ask_limits(&control(&gtd)).unwrap().default.sessions, 5);
}

#[test]
fn a_wrong_file_keeps_the_daemon_from_starting() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("gtd.yaml"), "threads: 3\nmemroy: 64M\n").unwrap();
    let output = Program::new(gtd_path()).args(["--config", "gtd.yaml"]).current_dir(&folder.0).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("gtd: gtd.yaml:2: memroy: there is no such key; did you mean `memory`?"), "{said}");
}

#[test]
fn a_file_is_read_again_without_losing_sessions() {
    let gtd = configured("log: warn\nlimits: {sessions: 5}\n", &[]);
    let mut client = gtd.client();
    let id = client.full(&[2], 3.0);
    assert_eq!(client.fetch_f32(id, 2).unwrap(), [3.0, 3.0]);
    let asker = control(&gtd);
    configure(&gtd, "log: info\nlimits: {sessions: 7}\nthreads: 17\nusers: {0: {weight: 2}}\n");
    let (path, changed, restart) = ask_reload(&asker).unwrap();
    assert_eq!((path.as_str(), restart), ("gtd.yaml", vec!["threads".to_string()]));
    assert_eq!(changed, ["log", "limits", "users"]);
    assert_eq!(ask_limits(&asker).unwrap().default.sessions, 7);
    configure(&gtd, "limits:\n  session: 9\n");
    match ask_reload(&asker) {
        Err(ProtocolError::Refused(refused)) => {
            assert_eq!(refused.code, RefusalCode::Config);
            assert!(refused.text.starts_with("gtd.yaml:2: limits.session: there is no such key"), "{refused}");
            assert!(refused.text.ends_with("the old configuration stays in force"), "{refused}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(ask_limits(&asker).unwrap().default.sessions, 7);
    assert!(gtd.stderr().contains("gtd.yaml:2: limits.session"), "{}", gtd.stderr());
    configure(&gtd, "limits: {sessions: 9}\n");
    gtd.signal(Signal::SIGHUP);
    eventually("the signal had the file read", || ask_limits(&asker).unwrap().default.sessions == 9);
    assert_eq!(client.fetch_f32(id, 2).unwrap(), [3.0, 3.0]);
}

#[test]
fn without_a_file_there_is_nothing_to_read_again() {
    let mut gtd = Gtd::start(&[]);
    match ask_reload(&control(&gtd)) {
        Err(ProtocolError::Refused(refused)) => assert!(refused.text.contains("gtd --config PATH"), "{refused}"),
        other => panic!("{other:?}"),
    }
    // Without a file, SIGHUP means that the daemon's terminal has closed.
    gtd.signal(Signal::SIGHUP);
    assert!(gtd.wait().success());
}

#[test]
fn the_next_daemon_remembers_how_much_users_have_used() {
    let state = Folder::new();
    let path = state.0.to_str().unwrap();
    let me = nix::unistd::getuid().as_raw();
    let usage_s = |gtd: &Gtd| {
        let users = ask_limits(&control(gtd)).unwrap().users;
        users.iter().find(|user| user.uid == me).map_or(0.0, |user| user.usage_s)
    };
    let had = {
        let mut gtd = Gtd::start(&["--state", path]);
        let mut client = gtd.client();
        let id = client.full(&[1 << 20], 1.0);
        let mut last = id;
        eventually("enough was had to be remembered", || {
            for _ in 0..100 {
                last = client.binary(Op::Add, last, id);
            }
            client.sync();
            usage_s(&gtd) > 0.2
        });
        let had = usage_s(&gtd);
        drop(client);
        gtd.signal(Signal::SIGTERM);
        assert!(gtd.wait().success());
        had
    };
    let file = state.0.join("usage.json");
    {
        // The environment names the state folder, as under systemd.
        let gtd = Gtd::start_with(&[], &[("STATE_DIRECTORY", path)]);
        let client = gtd.client();
        let now = usage_s(&gtd);
        assert!(now >= 0.9 * had, "{now} of {had}");
        drop(client);
    }
    std::fs::write(&file, "{\"unix_s\": 1, \"usa").unwrap();
    let gtd = Gtd::start(&["--state", path]);
    let mut client = gtd.client();
    let id = client.full(&[2], 3.0);
    assert_eq!(client.fetch_f32(id, 2).unwrap(), [3.0, 3.0]);
    assert!(usage_s(&gtd) < 0.1);
    let said = gtd.stderr();
    assert!(said.contains("what users have had is forgotten") && said.contains("usage.json: EOF"), "{said}");
}

/// Starts a daemon as systemd does: with the listening socket as descriptor 3.
fn activated(listener: Socket, folder: &Folder, environment: &[(&str, &str)]) -> std::process::Child {
    Program::new("sh")
        .args([
            "-c",
            "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 WATCHDOG_PID=$$ exec \"$0\"",
            &gtd_path().display().to_string(),
        ])
        .envs(environment.iter().copied())
        .current_dir(&folder.0)
        .stdin(OwnedFd::from(listener))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_socket_that_systemd_listens_on_outlives_daemons() {
    let folder = Folder::new();
    let listener = Socket::listen(&folder.socket()).unwrap();
    for _ in 0..2 {
        let copy = OwnedFd::from(listener_copy(&listener));
        let mut child = activated(Socket::from(copy), &folder, &[]);
        // The kernel queues a connection that comes before the daemon is ready.
        let mut client = Client::connect(&folder.socket());
        let id = client.full(&[1], 4.0);
        assert_eq!(client.fetch_f32(id, 1).unwrap(), [4.0]);
        drop(client);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        assert!(wait(&mut child).success());
        assert!(folder.socket().exists());
    }
}

fn listener_copy(listener: &Socket) -> Socket {
    use std::os::fd::AsFd;
    Socket::from(listener.as_fd().try_clone_to_owned().unwrap())
}

#[test]
fn a_socket_of_another_kind_is_refused() {
    let folder = Folder::new();
    let (one, _other) = Socket::pair().unwrap();
    let output = activated(one, &folder, &[]).wait_with_output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ListenSequentialPacket"), "{said}");
}

#[test]
fn systemd_hears_that_the_daemon_is_ready_and_alive_and_ends() {
    let folder = Folder::new();
    let path = folder.0.join("notify");
    let notify = UnixDatagram::bind(&path).unwrap();
    notify.set_read_timeout(Some(crate::support::DEADLINE)).unwrap();
    let heard = || {
        let mut bytes = [0; 512];
        let length = notify.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let listener = Socket::listen(&folder.socket()).unwrap();
    let within = Duration::from_millis(300).as_micros().to_string();
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", &within)];
    let mut child = activated(listener, &folder, &environment);
    let first = heard();
    assert!(first.starts_with("READY=1\nSTATUS=Serving"), "{first}");
    for _ in 0..3 {
        assert_eq!(heard().trim(), "WATCHDOG=1");
    }
    let signal = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
    signal(Signal::SIGTERM);
    eventually("it says that it ends", || heard().trim() == "STOPPING=1");
    assert!(wait(&mut child).success());
}
