//! The documentation of the configuration's keys, from [`gt_config`]: as a table, as JSON, and as the manual page
//! gtd.yaml(5).

use crate::output::CommandOutput;
use crate::table::Table;
use gt_config::{About, SYSTEM_FILE};
use roff::{Roff, bold, italic, roman};
use serde_json::{Value, json};

const INTRODUCTION: &str = "The file is YAML, and each key may be left out. What the command line of gtd says is stronger, \
                            then what the environment says, then the file. Bytes are written 512M or 8G. An unknown key \
                            or a wrong value is an error with file, line and key: with it the daemon does not start, \
                            and a reload keeps what was in force.";
const EXAMPLE: &str =
    "log: info\nlimits:\n  memory: 16G\nusers:\n  ana: {memory: 64G, weight: 2}\n  1007: {sessions: 4}\n";

/// The output of `gtctl config keys`.
pub fn output() -> CommandOutput {
    let [file, limits] = gt_config::about();
    let text = format!(
        "{}\nof limits, and of each of groups and users:\n\n{}\n(* takes a new start of the daemon; a reload is enough for the others)\n",
        table(&file),
        table(&limits)
    );
    CommandOutput::new(text, &json!({"file": documents(&file), "limits": documents(&limits)}))
}

fn table(keys: &[(&str, About)]) -> String {
    let mut table = Table::new(&[("KEY", false), ("DEFAULT", false), ("VALUE", false), ("WHAT IT IS", false)]);
    for (name, About { value, default, text, needs_start }) in keys {
        let star = if *needs_start { "*" } else { "" };
        let default = if default.is_empty() { "-" } else { default };
        table.row(vec![format!("{name}{star}"), default.to_string(), value.to_string(), text.to_string()]);
    }
    table.text()
}

fn documents(keys: &[(&str, About)]) -> Vec<Value> {
    keys.iter()
        .map(|(name, About { value, default, text, needs_start })| {
            json!({"key": name, "value": value, "default": default, "text": text, "needs_start": needs_start})
        })
        .collect()
}

/// The manual page, as roff.
pub fn manual() -> String {
    let mut page = Roff::new();
    page.control("TH", ["gtd.yaml", "5", "", concat!("gtd ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]).text([roman("gtd.yaml - configuration of the GT daemon")]);
    page.control("SH", ["SYNOPSIS"]).text([roman(SYSTEM_FILE)]);
    page.control("SH", ["DESCRIPTION"]).text([roman(INTRODUCTION)]);
    let [file, limits] = gt_config::about();
    page.control("SH", ["KEYS"]);
    describe(&mut page, &file);
    page.control("SH", ["KEYS OF LIMITS"]);
    page.text([
        roman("Below "),
        bold("limits"),
        roman(", and below each of "),
        bold("groups"),
        roman(" and "),
        bold("users"),
        roman("."),
    ]);
    describe(&mut page, &limits);
    page.control("SH", ["EXAMPLE"]).control("nf", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []).control("SH", ["SEE ALSO"]);
    page.text([
        bold("gtd"),
        roman("(8), "),
        bold("gtctl-config-check"),
        roman("(1), "),
        bold("gtctl-reload"),
        roman("(1)"),
    ]);
    page.render()
}

fn describe(page: &mut Roff, keys: &[(&str, About)]) {
    for (name, About { value, default, text, needs_start }) in keys {
        page.control("TP", []).text([bold(format!("{name}: ")), italic(*value)]).text([roman(*text)]);
        if !default.is_empty() {
            page.text([roman(format!("The default is {default}."))]);
        }
        if *needs_start {
            page.text([roman("A change takes a new start of the daemon.")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_good() {
        let users = EXAMPLE.replace("ana:", "root:");
        let settings = gt_config::parse(&users, SYSTEM_FILE.as_ref()).unwrap();
        assert_eq!(settings.users.len(), 2);
    }

    #[test]
    fn every_key_is_everywhere() {
        let (page, CommandOutput { text, json, .. }) = (manual(), output());
        let [file, limits] = gt_config::about();
        assert!(file.len() > 9 && limits.len() > 5);
        for ((name, about), group) in
            file.iter().map(|key| (key, "file")).chain(limits.iter().map(|key| (key, "limits")))
        {
            assert!(text.contains(about.text), "{text}");
            assert!(page.contains(&format!(r"\fB{name}: \fR")), "{name}\n{page}");
            let documents = json[group].as_array().unwrap();
            assert!(documents.iter().any(|key| key["key"] == *name && key["default"] == about.default), "{json}");
        }
    }
}
