//! The error type of shape, dtype and argument rules.

/// The kind of an error. The Python package maps each kind to the exception class that PyTorch raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// `RuntimeError`: shapes that do not fit, an op that failed.
    Runtime,
    /// `IndexError`: an axis or index out of range.
    Index,
    /// `TypeError`: an argument of the wrong type or dtype.
    Type,
    /// `ValueError`: an argument of the right type with an impossible value.
    Value,
    /// `NotImplementedError`: a feature that GT does not have.
    NotImplemented,
    /// `AssertionError`: an argument for which PyTorch's Python code has an `assert`.
    Assertion,
    /// `LinAlgError`: a matrix that an algorithm of linear algebra cannot handle, such as a singular one.
    LinAlg,
    /// `RuntimeError`: something that is not known, or not computed, of a whole batch within `vmap`.
    NotBatched,
}

/// An error: its kind, and a message that says what was asked, what was found and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpError {
    /// The kind of exception.
    pub kind: ErrorKind,
    /// The message for the user.
    pub message: Box<str>,
}

impl OpError {
    /// An error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into_boxed_str() }
    }
    /// An error of kind [`ErrorKind::Runtime`].
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Runtime, message)
    }
    /// An error of kind [`ErrorKind::Index`].
    pub fn index(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Index, message)
    }
    /// An error of kind [`ErrorKind::Type`].
    pub fn type_(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Type, message)
    }
    /// An error of kind [`ErrorKind::Value`].
    pub fn value(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Value, message)
    }
    /// An error of kind [`ErrorKind::Assertion`].
    pub fn assertion(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Assertion, message)
    }
    /// An error of kind [`ErrorKind::NotImplemented`].
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotImplemented, message)
    }
}

/// The result of a rule.
pub type Result<T> = std::result::Result<T, OpError>;
