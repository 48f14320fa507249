//! A daemon under test, and a raw client that uses rings, messages and slots directly.

use gt_ops::failure::Failure;
use gt_ops::wire::{ArenaRange, Command, Completion, Encoder, FREE_IDS_MAX, Slot};
use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Operand, Scalar, Shape, TensorId};
use gt_protocol::{Connection, Hello, Role, StatusDocument, Welcome, WorkerInfo, WorkerState};
use gt_shm::{ArenaAllocator, ArenaBlock, ClientPort, SessionState, Socket};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits before it fails: on a busy machine, several times what is needed.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The daemon that `GT_DAEMON` names, or the one that was built with this program: an example finds it in the folder
/// above its own.
pub fn gtd_path() -> PathBuf {
    let built = || match option_env!("CARGO_BIN_EXE_gtd") {
        Some(path) => path.into(),
        None => std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("gtd"),
    };
    std::env::var_os("GT_DAEMON").map_or_else(built, PathBuf::from)
}

/// A folder for one test, removed at its end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gtd-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    pub fn socket(&self) -> PathBuf {
        self.0.join("gtd.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon in the foreground, killed at the end of the test.
pub struct Gtd {
    pub folder: Folder,
    pub child: Child,
    /// One control connection for all queries. A new one for each would show in their answers.
    control: RefCell<Option<Connection>>,
}

impl Gtd {
    pub fn start(arguments: &[&str]) -> Gtd {
        Gtd::start_with(arguments, &[])
    }

    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Gtd {
        Gtd::start_in(Folder::new(), arguments, environment)
    }

    /// Starts a daemon in a folder that may have files already.
    pub fn start_in(folder: Folder, arguments: &[&str], environment: &[(&str, &str)]) -> Gtd {
        let child = Gtd::spawn(&folder, arguments, environment);
        Gtd::around(folder, child)
    }

    /// A daemon that was started elsewhere, and listens at the folder's socket.
    pub fn around(folder: Folder, child: Child) -> Gtd {
        let mut gtd = Gtd { child, folder, control: RefCell::default() };
        gtd.wait_listening();
        let is_running = |worker: &WorkerInfo| worker.state == WorkerState::Running;
        eventually("its workers run", || gtd.status().workers.iter().all(is_running));
        gtd
    }

    pub fn spawn(folder: &Folder, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
        Program::new(gtd_path())
            .env("GT_WORKERS", crate::workers())
            .arg("--socket")
            .arg(folder.socket())
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.0.join("stderr")).unwrap())
            .spawn()
            .unwrap()
    }

    pub fn wait_listening(&mut self) {
        let socket = self.folder.socket();
        eventually("the daemon listens", || {
            assert!(self.child.try_wait().unwrap().is_none(), "gtd ended: {}", self.stderr());
            match gtd_control(&socket) {
                Ok(connection) => {
                    self.control.replace(Some(connection));
                    true
                }
                Err(gt_protocol::ProtocolError::Connect { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        });
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("stderr")).unwrap()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.folder.socket())
    }

    pub fn status(&self) -> StatusDocument {
        gt_protocol::ask_status(&self.control.borrow().as_ref().unwrap().socket).unwrap()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// The number of descriptors that the daemon has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The number of segments that the daemon has mapped.
    pub fn segments(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        maps.lines().filter(|line| line.contains("/memfd:gt-")).count()
    }

    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

fn gtd_control(socket: &Path) -> gt_protocol::Result<Connection> {
    gt_protocol::connect(socket, &Hello::new(Role::Control, None))
}

impl Drop for Gtd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the process ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// A private daemon, which belongs to its clients, and its first client.
pub struct Private {
    pub child: Child,
    pub name: PathBuf,
    pub socket: Socket,
}

impl Private {
    pub fn start() -> Private {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (ours, theirs) = Socket::pair().unwrap();
        let name = format!("@gt-private-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let child = Program::new(gtd_path())
            .args(["--private", "--client-fd", "0", "--name", &name])
            .env("GT_WORKERS", crate::workers())
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        Private { child, name: name.into(), socket: ours }
    }
}

/// A raw client, which may send anything.
pub struct Client {
    pub socket: Socket,
    pub welcome: Welcome,
    pub port: ClientPort,
    pub arena: ArenaAllocator,
    pub encoder: Encoder,
    pub next_id: TensorId,
    pub next_token: u64,
}

impl Client {
    pub fn connect(path: &Path) -> Client {
        Client::of(gt_protocol::connect(path, &Hello::new(Role::Client, Some("test".into()))).unwrap())
    }

    pub fn of(connection: Connection) -> Client {
        Client {
            socket: connection.socket,
            welcome: connection.welcome,
            port: connection.port.unwrap(),
            arena: ArenaAllocator::new(),
            encoder: Encoder::new(),
            next_id: 0,
            next_token: 0,
        }
    }

    pub fn session(&self) -> u64 {
        self.welcome.session.as_ref().unwrap().session_id
    }

    pub fn id(&mut self) -> TensorId {
        self.next_id += 1;
        self.next_id
    }

    pub fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub fn send(&mut self, command: &Command) {
        let slots = self.encoder.encode(command).to_vec();
        self.send_slots(&slots);
    }

    pub fn send_slots(&mut self, slots: &[Slot]) {
        while self.port.push_publish(slots).is_err() {
            assert_ne!(self.port.state(), SessionState::Closed, "the session was closed");
            self.port.wait_space(slots.len() as u32, Duration::from_millis(10));
        }
    }

    pub fn op(&mut self, op: Op, operands: &[Operand], attrs: Attrs) -> TensorId {
        let out = self.id();
        let inputs = Inputs::from_slice(operands);
        self.send(&Command::Op(Instruction { op, out, inputs, last_use: 0, attrs, tf32: false, replaces: None }));
        out
    }

    pub fn full(&mut self, dims: &[usize], value: f64) -> TensorId {
        let attrs = Attrs::Create { shape: Shape::new(dims).unwrap(), dtype: DType::F32 };
        self.op(Op::Full, &[Operand::Scalar(Scalar::Float(value))], attrs)
    }

    pub fn binary(&mut self, op: Op, left: TensorId, right: TensorId) -> TensorId {
        self.op(op, &[Operand::Tensor(left), Operand::Tensor(right)], Attrs::None)
    }

    pub fn free(&mut self, ids: &[TensorId]) {
        for some in ids.chunks(FREE_IDS_MAX) {
            let mut ids = [0; FREE_IDS_MAX];
            ids[..some.len()].copy_from_slice(some);
            self.send(&Command::Free { ids });
        }
    }

    pub fn block(&mut self, bytes: usize) -> ArenaBlock {
        if let Ok(block) = self.arena.alloc(bytes as u64) {
            return block;
        }
        let granted = gt_protocol::ask_arena(&self.socket, bytes as u64 + 4096).unwrap();
        assert_eq!(self.arena.add(granted.fd, granted.bytes).unwrap(), granted.segment);
        self.arena.alloc(bytes as u64).unwrap()
    }

    pub fn upload(&mut self, meta: Meta, bytes: &[u8]) -> TensorId {
        let id = self.id();
        self.send(&Command::Allocate { out: id, meta });
        let mut block = self.block(bytes.len());
        block.write(bytes);
        let token = self.token();
        self.send(&Command::Write { token, id, offset_bytes: 0, from: range(&block, bytes.len()) });
        self.completion(token).unwrap();
        id
    }

    pub fn fetch(&mut self, id: TensorId, bytes: usize) -> Result<Vec<u8>, Failure> {
        let block = self.block(bytes);
        let token = self.token();
        self.send(&Command::Fetch { token, id, offset_bytes: 0, to: range(&block, bytes) });
        self.completion(token)?;
        let mut fetched = vec![0; bytes];
        block.read(&mut fetched);
        Ok(fetched)
    }

    pub fn fetch_f32(&mut self, id: TensorId, len: usize) -> Result<Vec<f32>, Failure> {
        let bytes = self.fetch(id, len * 4)?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    pub fn sync(&mut self) {
        let token = self.token();
        self.send(&Command::Sync { token });
        self.completion(token).unwrap();
    }

    /// The next completion, which must be `token`'s.
    pub fn completion(&mut self, token: u64) -> Result<(), Failure> {
        let slot = self.wait_completion().expect("the session was closed");
        let completion = Completion::decode(&slot);
        assert_eq!(completion.token, token);
        completion.result
    }

    /// The next completion; none if the session was closed.
    pub fn wait_completion(&mut self) -> Option<Slot> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let spin = gt_shm::port::spin_default();
            if let Some(slot) = self.port.wait_completion(spin, Duration::from_millis(100)) {
                return Some(slot);
            }
            if self.port.state() == SessionState::Closed || self.socket.is_hung_up() {
                return None;
            }
            assert!(Instant::now() < deadline, "no completion came");
        }
    }

    pub fn wait_closed(&self) {
        eventually("the session is closed", || self.port.state() == SessionState::Closed);
    }
}

pub fn range(block: &ArenaBlock, len: usize) -> ArenaRange {
    ArenaRange { segment: block.arena() as u64, offset_bytes: block.offset(), len_bytes: len as u64 }
}

pub fn f32s(dims: &[usize]) -> Meta {
    Meta::new(Shape::new(dims).unwrap(), DType::F32)
}
