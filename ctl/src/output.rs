//! What a command answers: a text for people and a document for programs.

use crate::failure::Exit;
use serde::Serialize;
use serde_json::Value;

/// An answer.
pub struct CommandOutput {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// How the program ends after it.
    pub exit: Exit,
}

impl CommandOutput {
    /// An answer to something that went well.
    pub fn new(text: String, document: &impl Serialize) -> CommandOutput {
        let json = serde_json::to_value(document).unwrap_or_else(|error| Value::String(error.to_string()));
        CommandOutput { text, json, exit: Exit::Good }
    }

    /// An answer that is the same for programs.
    pub fn text_alone(text: String) -> CommandOutput {
        CommandOutput { json: Value::String(text.clone()), text, exit: Exit::Good }
    }
}
