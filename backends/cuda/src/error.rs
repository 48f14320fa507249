//! Errors of the driver, as errors of a backend.

use crate::driver::DriverError;
use gt_backend::ExecError;

/// The result of an operation of the backend.
pub(crate) type Result<T> = std::result::Result<T, ExecError>;

/// The error of an instruction whose call to the driver failed.
pub(crate) fn failed(error: DriverError) -> ExecError {
    match error {
        DriverError::Lost { .. } => ExecError::Lost(error.to_string().into()),
        error => ExecError::internal(error.to_string()),
    }
}

/// The error of a device that cannot even be polled: it will execute nothing more.
pub(crate) fn lost(error: impl ToString) -> ExecError {
    ExecError::Lost(error.to_string().into())
}
