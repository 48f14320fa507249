//! The output of a command: a text for users, or a JSON document for programs.

use crate::failure::Exit;
use serde::Serialize;
use serde_json::Value;

/// The output of a command.
pub struct CommandOutput {
    /// The text for users.
    pub text: String,
    /// The document for programs.
    pub json: Value,
    /// The exit status.
    pub exit: Exit,
}

impl CommandOutput {
    /// The output of a successful command.
    pub fn new(text: String, document: &impl Serialize) -> CommandOutput {
        let json = serde_json::to_value(document).unwrap_or_else(|error| Value::String(error.to_string()));
        CommandOutput { text, json, exit: Exit::Good }
    }

    /// The output of a successful command whose document is the text itself.
    pub fn text_alone(text: String) -> CommandOutput {
        CommandOutput { json: Value::String(text.clone()), text, exit: Exit::Good }
    }
}

/// Prints a message for the user to the standard error.
#[expect(clippy::print_stderr, reason = "a command line says what went wrong")]
pub fn complain(message: &str) {
    eprintln!("gtctl: {message}");
}
