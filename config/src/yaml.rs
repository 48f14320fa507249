//! YAML read by tables of keys. Errors name the line and the key; unknown keys are errors.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An unknown key within this edit distance of a known one is reported as a typing error.
const TYPO_EDITS_MAX: usize = 3;

/// An error in a configuration file, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {text}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error, and what to do.
        text: String,
    },
    /// Every user may change the file.
    #[error("{0} may be written by every user of this machine, so anybody could configure the daemon: chmod o-w {0}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// A key or value is invalid.
    #[error("{}:{line}: {}{text}", path.display(), prefix(key))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, as `limits.memory`; empty if the text is not YAML.
        key: String,
        /// The error, and what to write.
        text: String,
    },
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

/// A value in a file, with its key and line.
pub struct YamlValue<'a> {
    path: &'a Path,
    key: String,
    line: usize,
    node: &'a MarkedYaml<'a>,
}

/// The documentation of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The form of its value.
    pub value: &'static str,
    /// The default; empty if there is none.
    pub default: &'static str,
    /// The meaning: a sentence.
    pub text: &'static str,
    /// True if a change takes effect only when the daemon is started again; other keys need a reload.
    pub needs_start: bool,
}

/// A key of a configuration, and how its value is stored.
pub struct Key<T> {
    /// The key's name.
    pub name: &'static str,
    /// The key's documentation.
    pub about: About,
    /// Parses the value and stores it.
    pub set: fn(&mut T, &YamlValue<'_>) -> Result<(), ConfigError>,
}

/// Reads a text that is a map with the keys of a table. An empty text sets nothing.
///
/// # Errors
/// The first error in the text.
pub fn read<T: Default>(text: &str, path: &Path, keys: &[Key<T>]) -> Result<T, ConfigError> {
    let place =
        |line, text: &str| ConfigError::Invalid { path: path.into(), line, key: String::new(), text: text.into() };
    let documents = MarkedYaml::load_from_str(text).map_err(|error| place(error.marker().line(), error.info()))?;
    let mut into = T::default();
    match documents.as_slice() {
        [] => {}
        [document] => {
            let value = YamlValue { path, key: String::new(), line: document.span.start.line(), node: document };
            value.keys(&mut into, keys)?;
        }
        [_, second, ..] => return Err(place(second.span.start.line(), "a second document; write one")),
    }
    Ok(into)
}

impl<'a> YamlValue<'a> {
    /// An error about this value.
    pub fn wrong(&self, text: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { path: self.path.into(), line: self.line, key: self.key.clone(), text: text.into() }
    }

    fn is_null(&self) -> bool {
        matches!(self.node.data, YamlData::Value(Scalar::Null))
    }

    /// A number, word or boolean as it is written.
    fn text(&self) -> Result<String, ConfigError> {
        match &self.node.data {
            YamlData::Value(Scalar::Boolean(b)) => Ok(if *b { "on" } else { "off" }.into()),
            YamlData::Value(Scalar::Integer(n)) => Ok(n.to_string()),
            YamlData::Value(Scalar::FloatingPoint(x)) => Ok(x.to_string()),
            YamlData::Value(Scalar::String(text)) => Ok(text.to_string()),
            YamlData::Sequence(_) => Err(self.wrong("one value is expected, not a list")),
            YamlData::Mapping(_) => Err(self.wrong("one value is expected, not keys with values")),
            _ => Err(self.wrong("a tag or a value that is not understood")),
        }
    }

    /// Parses a value of one word. A key without a value sets nothing.
    pub fn word<T: FromStr<Err = String>>(&self, into: &mut Option<T>) -> Result<(), ConfigError> {
        self.with(into, |text| text.parse())
    }

    /// Parses a value of one word with `read`.
    pub fn with<T>(&self, into: &mut Option<T>, read: impl Fn(&str) -> Result<T, String>) -> Result<(), ConfigError> {
        if !self.is_null() {
            *into = Some(read(&self.text()?).map_err(|text| self.wrong(text))?);
        }
        Ok(())
    }

    /// Parses a value, or a list of words as if commas were between them.
    pub fn words<T: FromStr<Err = String>>(&self, into: &mut Option<T>) -> Result<(), ConfigError> {
        let YamlData::Sequence(items) = &self.node.data else { return self.word(into) };
        let texts = items.iter().map(|node| {
            YamlValue { path: self.path, key: self.key.clone(), line: node.span.start.line(), node }.text()
        });
        let text = texts.collect::<Result<Vec<_>, _>>()?.join(",");
        *into = Some(text.parse().map_err(|text: String| self.wrong(text))?);
        Ok(())
    }

    /// The file's line and the key.
    pub fn place(&self) -> (usize, &str) {
        (self.line, &self.key)
    }

    /// The keys of a map, with their values.
    pub fn entries(&self) -> Result<Vec<(String, YamlValue<'a>)>, ConfigError> {
        let pairs = match &self.node.data {
            YamlData::Value(Scalar::Null) => return Ok(Vec::new()),
            YamlData::Mapping(pairs) => pairs,
            _ => return Err(self.wrong("keys with values are expected, as in `key: value`")),
        };
        pairs
            .iter()
            .map(|(key, node)| {
                let line = key.span.start.line();
                let name = YamlValue { path: self.path, key: self.key.clone(), line, node: key }.text()?;
                let dot = if self.key.is_empty() { "" } else { "." };
                let value = YamlValue { path: self.path, key: format!("{}{dot}{name}", self.key), line, node };
                Ok((name, value))
            })
            .collect()
    }

    /// Reads a map with the keys of a table.
    pub fn keys<T>(&self, into: &mut T, keys: &[Key<T>]) -> Result<(), ConfigError> {
        for (name, value) in self.entries()? {
            let Some(key) = keys.iter().find(|key| key.name == name) else {
                return Err(value.wrong(unknown(&name, keys.iter().map(|key| key.name))));
            };
            (key.set)(into, &value)?;
        }
        Ok(())
    }
}

fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.collect();
    let distance = |other: &&&str| strsim::damerau_levenshtein(name, other);
    match known.iter().min_by_key(distance).filter(|near| distance(near) <= TYPO_EDITS_MAX.min(near.len() / 2)) {
        Some(near) => format!("there is no such key; did you mean `{near}`?"),
        None => format!("there is no such key; known are {}", known.join(", ")),
    }
}
