//! Python's global lock: data it guards, and waiting without it.

use gt_client::blocking;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::time::Duration;

/// A value guarded by the global lock.
///
/// Reading an operand must not cost an atomic operation, and an op may release the lock while it waits for room in the
/// ring, so readers are counted: a writer waits for them, without the lock.
pub struct GilCell<T> {
    value: UnsafeCell<T>,
    readers: Cell<u32>,
}

// SAFETY: every access takes a `Python` token, which only the thread that holds the global lock has. The module
// declares that it needs that lock, so a free-threaded interpreter takes it too.
unsafe impl<T: Send> Sync for GilCell<T> {}

/// Keeps a value from changing.
pub struct Reading<'a, T> {
    cell: &'a GilCell<T>,
    // The guard is given up under the lock that it was taken under.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl<T> GilCell<T> {
    /// A cell of `value`.
    pub fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), readers: Cell::new(0) }
    }

    /// Reads, until the guard is dropped.
    #[inline]
    pub fn read(&self, _py: Python<'_>) -> Reading<'_, T> {
        self.readers.set(self.readers.get() + 1);
        Reading { cell: self, _not_send: std::marker::PhantomData }
    }

    /// Changes the value. `change` must not run Python code nor release the lock.
    pub fn write<R>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
        while self.readers.get() > 0 {
            // Another thread waits in the middle of an op on this tensor.
            py.detach(|| std::thread::sleep(Duration::from_micros(100)));
        }
        // SAFETY: this thread holds the lock until `change` returns, and nobody reads.
        change(unsafe { &mut *self.value.get() })
    }
}

impl<T> std::ops::Deref for Reading<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: writers wait while `readers` is not 0.
        unsafe { &*self.cell.value.get() }
    }
}

impl<T> Drop for Reading<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.readers.set(self.cell.readers.get() - 1);
    }
}

thread_local! {
    /// The exception of the signal that ended a wait, or of Python code that a backward pass called.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The exception that ended the call that has just returned `Interrupted`.
pub fn take_interrupt() -> PyErr {
    INTERRUPT.take().unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// Keeps the exception that ends a call into the client, which returns `Interrupted`.
pub fn keep_interrupt(error: PyErr) {
    INTERRUPT.set(Some(error));
}

/// Lets the client wait without the lock, and find the line that issued an instruction.
pub fn install_hooks() {
    blocking::set_hook(|wait, signals| {
        Python::try_attach(|py| {
            py.detach(wait);
            if !signals {
                return Ok(());
            }
            py.check_signals().map_err(keep_interrupt)
        })
        .unwrap_or(Ok(()))
    });
    gt_client::origin::set_origin_hook(|| Python::try_attach(|py| line_of_caller(py).ok())?);
}

/// The innermost line of Python outside this package.
fn line_of_caller(py: Python<'_>) -> PyResult<String> {
    let package = py.import("gt")?.getattr("__file__")?.extract::<String>()?;
    let package = package.trim_end_matches("__init__.py").to_owned();
    let mut frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    loop {
        let code = frame.getattr("f_code")?;
        let file = code.getattr("co_filename")?.extract::<String>()?;
        let back = frame.getattr("f_back")?;
        if !file.starts_with(&package) || back.is_none() {
            let line = frame.getattr("f_lineno")?.extract::<u32>()?;
            let name = code.getattr("co_name")?.extract::<String>()?;
            return Ok(format!("{file}:{line} in {name}"));
        }
        frame = back;
    }
}
