//! Data guarded by Python's global interpreter lock (GIL), and waiting without holding it.

use gt_client::blocking;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::CString;
use std::time::Duration;

/// A value guarded by the GIL.
///
/// Reading an operand must not cost an atomic operation, and an op may release the GIL while it waits for room in the
/// ring. So a plain counter counts the readers, and a writer releases the GIL until there are none.
pub struct GilCell<T> {
    value: UnsafeCell<T>,
    readers: Cell<u32>,
}

// SAFETY: every access takes a `Python` token, which only the thread that holds the GIL has. The module declares that
// it needs the GIL, so a free-threaded interpreter enables it too.
unsafe impl<T: Send> Sync for GilCell<T> {}

/// A read guard: the value does not change while it lives.
pub struct Reading<'a, T> {
    cell: &'a GilCell<T>,
    // The guard is not `Send`: it must be dropped by the thread that took it, which holds the GIL.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl<T> GilCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), readers: Cell::new(0) }
    }

    /// A read guard of the value.
    #[inline]
    pub fn read(&self, _py: Python<'_>) -> Reading<'_, T> {
        self.readers.set(self.readers.get() + 1);
        Reading { cell: self, _not_send: std::marker::PhantomData }
    }

    /// Changes the value. `change` must not run Python code nor release the GIL.
    pub fn write<R>(&self, py: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
        while self.readers.get() > 0 {
            // Another thread released the GIL in the middle of an op on this tensor.
            py.detach(|| std::thread::sleep(Duration::from_micros(100)));
        }
        // SAFETY: `readers` is 0, and this thread holds the GIL until `change` returns, so no reader starts.
        change(unsafe { &mut *self.value.get() })
    }
}

impl<T> std::ops::Deref for Reading<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is counted in `readers`, and `GilCell::write` waits until that is 0.
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
    /// The exception that ended a wait (raised by a signal handler) or a backward pass (raised by Python code in it).
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Takes the exception that ended a call into the client, which returned `Interrupted`.
pub fn take_interrupt() -> PyErr {
    INTERRUPT.take().unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// Stores the exception that ends a call into the client, which then returns `Interrupted`.
pub fn keep_interrupt(error: PyErr) {
    INTERRUPT.set(Some(error));
}

/// Installs the client's hooks: waiting without the GIL, and warnings.
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
    gt_client::notice::set_warning_hook(|text| {
        Python::try_attach(|py| {
            let text = CString::new(text).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1).map_err(keep_interrupt)
        })
        .unwrap_or(Ok(()))
    });
}
