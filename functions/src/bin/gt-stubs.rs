//! Writes the type stubs of the declared functions: `gt-stubs FOLDER` makes a `.pyi` file for each module there, and
//! one for the methods of tensors. The build of the Python package runs it.

use gt_functions::declaration::{Function, Kind, Parameter, Returns};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

const HEAD: &str = "\
# Written by gt-stubs from the declarations in functions/src: changes here are lost.
from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Sequence
from typing import Any, overload

from gt._gt import Device, DType, Generator, Number, Tensor
from gt._types import Size
";

fn annotation(parameter: &Parameter) -> String {
    let kind = match parameter.kind {
        Kind::Tensor => "Tensor",
        Kind::TensorOrNumber => "Tensor | Number",
        Kind::Tensors => "Sequence[Tensor]",
        Kind::Operands => "Tensor | Sequence[Tensor]",
        Kind::Number => "Number",
        Kind::Int => "_int",
        Kind::Float => "_float",
        Kind::Bool => "_bool",
        Kind::Ints | Kind::Sizes => "_int | Sequence[_int]",
        Kind::OptionalInts => "_int | Sequence[_int | None]",
        Kind::IntLists => "Sequence[_int | Sequence[_int]]",
        Kind::Floats => "_float | Sequence[_float]",
        Kind::Text => "str",
        Kind::DType => "DType",
        Kind::TensorOrInts => "Tensor | Sequence[_int]",
        Kind::Unsupported => "object",
    };
    if parameter.optional { format!("{kind} | None") } else { kind.to_owned() }
}

fn result(function: &Function) -> String {
    match function.returns {
        // New values of arguments are written to them, not returned.
        _ if !function.forms.updates.is_empty() => "Tensor".into(),
        Returns::Tensor => "Tensor".into(),
        // A named tuple is a tuple, whose fields a checker does not know.
        Returns::Tuple(_) if !function.forms.results.is_empty() => "Any".into(),
        Returns::Tuple(count) => format!("tuple[{}]", vec!["Tensor"; count].join(", ")),
        Returns::Tensors => "tuple[Tensor, ...]".into(),
        Returns::TensorOrTuple | Returns::TensorAndTuple => "Any".into(),
        Returns::Bool => "_bool".into(),
        Returns::Number => "Number".into(),
        Returns::Sizes => "Size".into(),
        Returns::DType => "DType".into(),
    }
}

/// The parameters of a function, or of a method if `method`.
fn signature(function: &Function, method: bool) -> String {
    let parameters = function.parameters();
    let positional = parameters.iter().filter(|parameter| !parameter.keyword_only).count();
    let mut words: Vec<String> = Vec::new();
    let mut starred = false;
    for (i, parameter) in parameters.iter().enumerate() {
        let name = parameter.python_name();
        if i == 0 && method {
            words.push("self".into());
        } else if matches!(parameter.kind, Kind::Sizes | Kind::Operands) && i + 1 == positional {
            words.push(format!("*{name}: {}", annotation(parameter)));
            starred = true;
        } else {
            if parameter.keyword_only && !starred {
                words.push("*".into());
                starred = true;
            }
            let default = parameter.default.as_ref().map_or(String::new(), |default| match default.as_str() {
                "inf" | "-inf" => " = ...".into(),
                default => format!(" = {default}"),
            });
            words.push(format!("{name}: {}{default}", annotation(parameter)));
        }
    }
    let keywords = function.keywords(method);
    if !keywords.is_empty() && !starred {
        words.push("*".into());
    }
    words.extend(keywords.into_iter().map(|(name, kind, default)| format!("{name}: {kind} = {default}")));
    words.join(", ")
}

/// The overloads of each name, with the signature of each.
type Definitions<'a> = BTreeMap<String, Vec<(&'a Function, String)>>;

/// The definitions of functions by name, with their overloads and aliases.
fn definitions(indent: &str, module: &str, named: &Definitions<'_>) -> String {
    let mut text = String::new();
    let mut aliases = String::new();
    for (name, overloads) in named {
        for (function, definition) in overloads {
            if overloads.len() > 1 {
                let _ = writeln!(text, "{indent}@overload");
            }
            let _ = writeln!(text, "{indent}def {name}{definition}: ...");
            let own = module == function.forms.module;
            for alias in function.forms.aliases.iter().filter(|alias| own && !alias.contains('.')) {
                let suffix = if name.ends_with('_') && !function.name().ends_with('_') { "_" } else { "" };
                if !named.contains_key(&format!("{alias}{suffix}")) {
                    let line = format!("{indent}{alias}{suffix} = {name}\n");
                    if !aliases.contains(&line) {
                        aliases.push_str(&line);
                    }
                }
            }
        }
    }
    text + &aliases
}

/// The stubs: the name of each file and its text.
fn stubs() -> BTreeMap<String, String> {
    let mut modules: BTreeMap<&str, Definitions<'_>> = BTreeMap::new();
    let mut methods: Definitions<'_> = BTreeMap::new();
    for function in gt_functions::all() {
        let (name, forms) = (function.name(), &function.forms);
        let result = result(function);
        if forms.function {
            let definition = format!("({}) -> {result}", signature(function, false));
            let names = modules.entry(forms.module).or_default();
            names.entry(name.to_owned()).or_default().push((function, definition.clone()));
            for (module, alias) in forms.aliases.iter().filter_map(|alias| alias.rsplit_once('.')) {
                let names = modules.entry(module).or_default();
                names.entry(alias.to_owned()).or_default().push((function, definition.clone()));
            }
        }
        if forms.in_place_function {
            let definition = format!("({}) -> Tensor", signature(function, false));
            let names = modules.entry(forms.module).or_default();
            names.entry(format!("{name}_")).or_default().push((function, definition));
        }
        if forms.view_copy {
            let definition = format!("({}) -> {result}", signature(function, false));
            let names = modules.entry(forms.module).or_default();
            names.entry(format!("{name}_copy")).or_default().push((function, definition));
        }
        if forms.method {
            let definition = format!("({}) -> {result}", signature(function, true));
            methods.entry(name.to_owned()).or_default().push((function, definition));
        }
        if forms.in_place && forms.module.is_empty() {
            let definition = format!("({}) -> Tensor", signature(function, true));
            methods.entry(format!("{name}_")).or_default().push((function, definition));
        }
    }
    let mut files = BTreeMap::new();
    for (module, functions) in modules {
        let file = if module.is_empty() { "top".to_owned() } else { module.replace('.', "_") };
        files.insert(format!("{file}.pyi"), format!("{HEAD}\n{}", definitions("", module, &functions)));
    }
    files.insert("methods.pyi".into(), format!("{HEAD}\nclass Methods:\n{}", definitions("    ", "", &methods)));
    files
}

fn write(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, text) in stubs() {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1);
    match folder.map(|folder| write(Path::new(&folder))) {
        Some(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
