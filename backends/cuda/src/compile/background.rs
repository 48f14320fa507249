//! Compilation beside the worker's thread, which goes on without the kernel meanwhile.

use super::compiler::{Compiler, Image};
use super::store::Store;
use gt_backend::ExecError;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The most threads that compile for one device: a first training step needs some tens of kernels at once.
const THREADS_MAX: usize = 4;

/// A kernel to compile: what asks for it, a name for messages, and its source.
struct ToCompile<K> {
    key: K,
    name: String,
    source: String,
}

/// An image, or why there is none, under its key.
type Compiled<K> = (K, Result<Image, ExecError>);

/// A few threads that compile, started when they are first needed. They end when this is dropped, each after the kernel
/// that it compiles.
pub struct BackgroundCompiler<K> {
    compiler: Arc<dyn Compiler>,
    store: Store,
    jobs: Sender<ToCompile<K>>,
    waiting: Arc<Mutex<Receiver<ToCompile<K>>>>,
    made: (Sender<Compiled<K>>, Receiver<Compiled<K>>),
    threads: usize,
    pending: usize,
}

impl<K: Send + 'static> BackgroundCompiler<K> {
    /// Compiles with `compiler`, and keeps images in `store`.
    pub fn new(compiler: Arc<dyn Compiler>, store: Store) -> BackgroundCompiler<K> {
        let (jobs, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        BackgroundCompiler { compiler, store, jobs, waiting, made: channel(), threads: 0, pending: 0 }
    }

    /// Begins to compile; [`BackgroundCompiler::next`] returns the image under `key`.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if the system starts no thread.
    pub fn begin(&mut self, key: K, name: String, source: String) -> Result<(), ExecError> {
        if self.pending == self.threads && self.threads < THREADS_MAX {
            self.start()?;
        }
        // The receiver lives as long as `self`.
        if self.jobs.send(ToCompile { key, name, source }).is_ok() {
            self.pending += 1;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), ExecError> {
        let (compiler, store) = (self.compiler.clone(), self.store.clone());
        let (waiting, made) = (self.waiting.clone(), self.made.0.clone());
        let work = move || {
            loop {
                let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(ToCompile { key, name, source }) = job else { return };
                let image = image(&*compiler, &store, &name, &source);
                if made.send((key, image)).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("gt-compile".into()).spawn(work);
        started.map_err(|error| ExecError::internal(format!("no thread compiles kernels: {error}")))?;
        self.threads += 1;
        Ok(())
    }

    /// An image that was made since the last call, or why it was not; if `wait`, blocks until there is one.
    pub fn next(&mut self, wait: bool) -> Option<Compiled<K>> {
        if self.pending == 0 {
            return None;
        }
        let made = if wait { self.made.1.recv().ok() } else { self.made.1.try_recv().ok() };
        self.pending -= usize::from(made.is_some());
        made
    }
}

/// The image of `source`, from the store or compiled. `name` is for messages.
///
/// # Errors
/// Those of the compiler.
pub fn image(compiler: &dyn Compiler, store: &Store, name: &str, source: &str) -> Result<Image, ExecError> {
    store.get_or_make(&compiler.identity(), source, || {
        tracing::debug!(target: "gtd::compile", name, "compiles a kernel");
        compiler.compile(name, source)
    })
}
