//! Digests of everything that the figures of a template's kernels depend on. `resources.txt` has them, so that
//! `cargo test` compiles in full only the templates that have changed since it was written.

use crate::{SKIPPED, asked_for, library, resources};
use gt_cuda::catalogue::{Claims, catalogue, claims, dynamic_shared_bytes};
use gt_cuda::compile::nvrtc::base_options;
use gt_cuda::compile::{Architecture, Nvrtc};
use gt_cuda::headers::{HEADERS, included};
use gt_cuda::template::{KernelKey, images, source};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// The capabilities for which `cargo test` compiles kernels and compares them with the table.
pub const TESTED: [u32; 2] = [80, 90];
/// The first word of a line with a digest.
const DIGEST: &str = "digest";

/// The digests of templates, by name.
pub type Digests = BTreeMap<String, String>;

/// The compiler's full version, as its code states it, and the options of every compilation.
pub fn compiler(library: &Path) -> String {
    let nvrtc = Nvrtc::open(library, Architecture::Newer(TESTED[0])).expect("a library that is NVRTC");
    let made = nvrtc.compile_verbosely("nothing", "__global__ void nothing() {}");
    let (code, _) = made.unwrap_or_else(|error| panic!("{error}"));
    let code = String::from_utf8_lossy(&code).into_owned();
    let version = code.lines().find(|line| line.contains("Cuda compilation tools"));
    format!("{} {}", version.expect("PTX that states the version of its compiler"), base_options())
}

/// All that the figures of one template's kernels depend on, and what is checked of them.
fn text_of(compiler: &str, keys: &[KernelKey]) -> String {
    let mut text = format!("{compiler}\n");
    for key in keys {
        // Launches add shared memory to that of the source, and the claims are compared with the instructions.
        let _ = writeln!(text, "{} {} {:?}", key.name(), dynamic_shared_bytes(key), claims(key));
        text.push_str(&source(std::slice::from_ref(key)));
    }
    for (name, header) in included(&text) {
        let _ = write!(text, "{name}\n{header}");
    }
    text
}

/// The digest of each template of these kernels, which are all of it.
pub fn digests(compiler: &str, keys: &[KernelKey]) -> Digests {
    let digest = |text: String| Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let templates = keys.chunk_by(|a, b| a.template == b.template);
    templates.map(|keys| (keys[0].template.name.to_owned(), digest(text_of(compiler, keys)))).collect()
}

/// The table's lines with these digests.
pub fn lines(digests: &Digests) -> String {
    digests.iter().map(|(template, digest)| format!("{DIGEST} {template} {digest}\n")).collect()
}

/// Whether a line of the table has a digest.
pub fn is_digest(line: &str) -> bool {
    line.split(' ').next() == Some(DIGEST)
}

/// The digests that a table has.
pub fn parse(table: &str) -> Digests {
    let parse_line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [_, template, digest] => (template.to_owned(), digest.to_owned()),
        _ => panic!("resources.txt has the line: {line}"),
    };
    table.lines().filter(|line| is_digest(line)).map(parse_line).collect()
}

/// The templates whose digest is not the table's.
fn changed<'a>(table: &Digests, found: &'a Digests) -> BTreeSet<&'a str> {
    found.iter().filter(|(template, digest)| table.get(*template) != Some(digest)).map(|(name, _)| &**name).collect()
}

/// One kernel of every template and dtypes: of those whose instructions are checked, if there are any.
pub fn one_of_every_kind(keys: &[KernelKey]) -> Vec<KernelKey> {
    let mut kinds: Vec<KernelKey> = Vec::new();
    for alike in images(keys) {
        let checked = alike.iter().find(|key| claims(key) != Claims::default());
        let chosen = *checked.unwrap_or(&alike[0]);
        match kinds.last_mut() {
            Some(last) if last.template == chosen.template && last.dtypes == chosen.dtypes => {
                if claims(last) == Claims::default() {
                    *last = chosen;
                }
            }
            _ => kinds.push(chosen),
        }
    }
    kinds
}

/// The kernels to compile for a device of this capability: all of the templates that have changed since the table was
/// written, and of the others one of every kind for one of [`TESTED`].
pub fn to_compile(table: &Digests, found: &Digests, capability: u32, keys: &[KernelKey]) -> Vec<KernelKey> {
    let turn = TESTED.iter().position(|tested| *tested == capability).expect("a capability of TESTED");
    let changed = changed(table, found);
    let (mut whole, same): (Vec<KernelKey>, Vec<KernelKey>) =
        keys.iter().partition(|key| changed.contains(key.template.name));
    whole.extend(one_of_every_kind(&same).into_iter().skip(turn).step_by(TESTED.len()));
    whole
}

/// The templates whose digest in the table is of other sources, a line for each.
fn stale(table: &Digests, found: &Digests, is_whole: bool) -> Vec<String> {
    let mut stale: Vec<String> = changed(table, found).iter().map(|name| format!("{name} has changed")).collect();
    if is_whole {
        let gone = table.keys().filter(|name| !found.contains_key(*name));
        stale.extend(gone.map(|name| format!("{name} has a digest and is no template")));
    }
    stale
}

/// Sources that have changed need the table to be written again even if the figures are the same: a digest that is not
/// that of the sources would have every later run compile the whole template.
#[test]
fn every_digest_is_that_of_its_sources() {
    let Some(library) = library() else { return println!("{SKIPPED}") };
    let keys = asked_for(catalogue());
    let is_whole = keys.len() == catalogue().len();
    let stale = stale(&parse(&resources::text()), &digests(&compiler(&library), &keys), is_whole);
    assert!(
        stale.is_empty(),
        "sources of kernels are not those that the table was written for; write it with `make kernel-resources`, or its \
         part with GT_KERNELS=TEMPLATE, and look at its difference:\n{}",
        stale.join("\n")
    );
}

fn names(keys: &[KernelKey]) -> BTreeSet<String> {
    keys.iter().map(KernelKey::name).collect()
}

#[test]
fn of_templates_that_have_not_changed_one_kernel_of_every_kind_is_compiled() {
    let keys = catalogue();
    let table = digests("a compiler", &keys);
    let [ampere, hopper] = TESTED.map(|capability| names(&to_compile(&table, &table, capability, &keys)));
    let every_kind = one_of_every_kind(&keys);
    assert_eq!(&ampere | &hopper, names(&every_kind));
    assert!(ampere.is_disjoint(&hopper) && ampere.len().abs_diff(hopper.len()) <= 1);
    let kinds: BTreeSet<_> =
        keys.iter().map(|key| (key.template.name, key.dtypes.map(|dtype| dtype.map(|d| d as u8)))).collect();
    assert_eq!(kinds.len(), every_kind.len());
}

#[test]
fn a_template_that_has_changed_is_compiled_in_full() {
    let keys = catalogue();
    let found = digests("a compiler", &keys);
    let mut table = found.clone();
    table.insert("ctc".into(), "another digest".into());
    table.remove("fourier");
    for capability in TESTED {
        let compiled = to_compile(&table, &found, capability, &keys);
        let count = |keys: &[KernelKey], name: &str| keys.iter().filter(|key| key.template.name == name).count();
        for template in ["ctc", "fourier"] {
            assert_eq!(count(&compiled, template), count(&keys, template));
        }
        assert!(count(&compiled, "attention") < count(&keys, "attention"));
    }
}

#[test]
fn a_digest_of_other_sources_is_named_even_if_the_figures_are_the_same() {
    let keys = catalogue();
    let found = digests("a compiler", &keys);
    let written = parse(&lines(&found));
    assert_eq!(stale(&written, &found, true), [""; 0]);
    let (mut other, mut more) = (written.clone(), written.clone());
    other.insert("ctc".into(), "another digest".into());
    assert_eq!(stale(&other, &found, true), ["ctc has changed"]);
    more.insert("gone".into(), "a digest".into());
    assert_eq!(stale(&more, &found, true), ["gone has a digest and is no template"]);
    // Templates that nobody asked for are not missing.
    assert_eq!(stale(&more, &found, false), [""; 0]);
    assert_eq!(stale(&written, &digests("another compiler", &keys), true).len(), written.len());
}

#[test]
fn a_digest_is_of_the_headers_that_the_template_includes() {
    let all = catalogue();
    let keys: Vec<KernelKey> = all.into_iter().filter(|key| key.template.name == "ctc").collect();
    let text = text_of("a compiler", &keys);
    let has = |name: &str| {
        let header = HEADERS.iter().find(|(header, _)| *header == name).expect("a header");
        text.contains(header.1)
    };
    assert!(has("ctc.cuh") && has("rows.cuh") && has("types.cuh"));
    assert!(!has("attention.cuh") && !has("window.cuh"));
}
