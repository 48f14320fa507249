//! The registers and the memory of every kernel, and how many of its threads a multiprocessor holds: a table in git,
//! `resources.txt`, is the budget. The digest of each template, at its end, says which sources the table is of.

use crate::digests::{self, Digests, TESTED};
use crate::{OLDEST, asked_for, assert_as_written, catalogue, compile, library, without_tensor_cores};
use gt_cuda::catalogue::dynamic_shared_bytes;
use gt_cuda::template::{KernelKey, source};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The architectures of the table, in its order. `cargo test` compiles for those of [`TESTED`], `make kernel-resources`
/// for all.
const CAPABILITIES: [u32; 3] = [80, 90, 100];
/// Set by `make kernel-resources`, which writes the table.
const WRITE_VARIABLE: &str = "GT_WRITE_RESOURCES";
/// Kernels of a template with more than these share a line for each op, which has the most that any of them takes.
const LINES_MAX: usize = 64;

/// The resources of a multiprocessor, by the "Compute Capabilities" of NVIDIA's programming guide.
mod multiprocessor {
    pub const REGISTERS: u32 = 65_536;
    pub const THREADS: u32 = 2048;
    pub const BLOCKS: u32 = 32;
    pub const WARP: u32 = 32;
    /// A warp's registers, and a block's shared memory, are multiples of these.
    pub const REGISTERS_UNIT: u32 = 256;
    pub const SHARED_UNIT: u32 = 128;
    /// The shared memory of each block that the driver takes.
    pub const SHARED_RESERVED: u32 = 1024;

    pub fn shared_bytes(capability: u32) -> u32 {
        if capability < 90 { 164 << 10 } else { 228 << 10 }
    }
}

/// The resources that a kernel takes, or the most that several take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resources {
    /// Registers of a thread.
    registers: u32,
    /// Bytes that a thread stores because it has too few registers.
    spilled: u32,
    /// Bytes of a thread's local memory.
    stack: u32,
    /// Bytes of a block's shared memory.
    shared: u32,
    /// The threads that a multiprocessor holds at the same time.
    resident: u32,
}

impl Resources {
    /// The worse of both in each respect.
    fn worse(self, other: Resources) -> Resources {
        Resources {
            registers: self.registers.max(other.registers),
            spilled: self.spilled.max(other.spilled),
            stack: self.stack.max(other.stack),
            shared: self.shared.max(other.shared),
            resident: self.resident.min(other.resident),
        }
    }

    fn text(self) -> String {
        let Resources { registers, spilled, stack, shared, resident } = self;
        format!("{registers} {spilled} {stack} {shared} {resident}")
    }

    fn parse(words: &[&str]) -> Option<Resources> {
        let numbers: Vec<u32> = words.iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [registers, spilled, stack, shared, resident] = numbers[..] else { return None };
        Some(Resources { registers, spilled, stack, shared, resident })
    }
}

/// The threads that a multiprocessor holds of blocks like these.
fn resident_threads(capability: u32, threads: u32, registers: u32, shared: u32) -> u32 {
    use multiprocessor::{BLOCKS, REGISTERS, REGISTERS_UNIT, SHARED_RESERVED, SHARED_UNIT, THREADS, WARP};
    let warps = threads.div_ceil(WARP);
    let by_registers = REGISTERS / ((registers * WARP).next_multiple_of(REGISTERS_UNIT) * warps).max(1);
    let each = (shared + SHARED_RESERVED).next_multiple_of(SHARED_UNIT);
    let by_shared = multiprocessor::shared_bytes(capability) / each;
    threads * by_registers.min(by_shared).min(BLOCKS).min(THREADS / threads)
}

/// The most threads of a block, which the kernel's source states.
fn threads(key: &KernelKey) -> u32 {
    let source = source(std::slice::from_ref(key));
    let (_, bounds) = source.split_once("GT_KERNEL(").unwrap_or_else(|| panic!("{} states no bounds", key.name()));
    let digits: String = bounds.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{} states no number of threads", key.name()))
}

/// The number before `words` in the log's part about a kernel.
fn number_before(part: &str, words: &str) -> u32 {
    let Some((before, _)) = part.split_once(words) else { return 0 };
    let digits = before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("no number before {words}: {part}"))
}

/// The resources of each kernel, from the log of `ptxas -v`.
fn of_log(capability: u32, keys: &[KernelKey], log: &str) -> Vec<Resources> {
    let mut parts = BTreeMap::new();
    for part in log.split("Function properties for ").skip(1) {
        parts.insert(part.lines().next().unwrap_or_default().trim(), part);
    }
    let of = |key: &KernelKey| {
        let name = key.name();
        let part = parts.get(&*name).unwrap_or_else(|| panic!("ptxas says nothing of {name}"));
        let registers = number_before(part, " registers");
        assert!(registers > 0, "{name}: {part}");
        let shared = number_before(part, " bytes smem") + dynamic_shared_bytes(key);
        Resources {
            registers,
            spilled: number_before(part, " bytes spill stores"),
            stack: number_before(part, " bytes stack frame"),
            shared,
            resident: resident_threads(capability, threads(key), registers, shared),
        }
    };
    keys.iter().map(of).collect()
}

/// The line of the table that a kernel belongs to.
fn line_of(key: &KernelKey, of_template: usize) -> String {
    match key.op {
        Some(op) if of_template > LINES_MAX => format!("gt_{}_{}", key.template.name, op.name()),
        _ => key.name(),
    }
}

/// The line of each of these kernels, which are all of their templates.
fn line_names(keys: &[KernelKey]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key.template.name).or_insert(0) += 1;
    }
    keys.iter().map(|key| line_of(key, counts[key.template.name])).collect()
}

/// The number of kernels of each line.
fn counts(keys: &[KernelKey]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in line_names(keys) {
        *counts.entry(line).or_insert(0) += 1;
    }
    counts
}

/// The lines of a table of one architecture, of those of the kernels `keys` that were compiled: how many of each were,
/// and what they take at most.
fn lines_of(capability: u32, keys: &[KernelKey], compiled: &[KernelKey], log: &str) -> Lines {
    let names: HashMap<String, String> = keys.iter().map(KernelKey::name).zip(line_names(keys)).collect();
    let mut lines = Lines::new();
    for (key, resources) in compiled.iter().zip(of_log(capability, compiled, log)) {
        let joined = |(count, worst): &mut (usize, Resources)| (*count, *worst) = (*count + 1, worst.worse(resources));
        lines.entry(names[&key.name()].clone()).and_modify(joined).or_insert((1, resources));
    }
    lines
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvrtc/resources.txt")
}

/// The table in git.
pub fn text() -> String {
    std::fs::read_to_string(path()).expect("resources.txt, which `make kernel-resources` writes")
}

/// The lines of one architecture, by name.
type Lines = BTreeMap<String, (usize, Resources)>;

/// The table's text, from the lines of each architecture and the digests of templates.
fn table(architectures: &[Lines; CAPABILITIES.len()], of_templates: &Digests) -> String {
    let mut text = String::from(
        "# The most that every kernel takes, by NVRTC 13.0; `make kernel-resources` writes this file. For each\n\
         # architecture: registers of a thread, bytes that it spills, bytes of its stack, bytes of a block's shared\n\
         # memory, and the threads that a multiprocessor holds at the same time, of 2048. A line with several kernels\n\
         # has the most of each, and the fewest threads. The digests at the end are of each template's sources, with\n\
         # headers, options and compiler: `cargo test` compiles in full the templates whose digest is another.\n",
    );
    let names: BTreeMap<&String, usize> =
        architectures.iter().flatten().map(|(name, (count, _))| (name, *count)).collect();
    let widest = names.keys().map(|name| name.len()).max().unwrap_or(0);
    let mut line = |name: &str, count: &str, columns: [String; CAPABILITIES.len()]| {
        let columns: String = columns.iter().map(|column| format!(" | {column:22}")).collect();
        let line = format!("{name:widest$} {count:>7}{columns}");
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line("#", "kernels", CAPABILITIES.map(|capability| format!("sm_{capability}")));
    for (name, count) in names {
        let columns = std::array::from_fn(|i| {
            architectures[i].get(name).map_or_else(|| "?".into(), |(_, resources)| resources.text())
        });
        line(name, &count.to_string(), columns);
    }
    text + &digests::lines(of_templates)
}

/// The budget of one architecture.
fn budget(text: &str, capability: u32) -> Lines {
    let column = CAPABILITIES.iter().position(|known| *known == capability).expect("an architecture of the table") + 1;
    let of_line = |line: &str| {
        let fields: Vec<Vec<&str>> = line.split('|').map(|field| field.split_whitespace().collect()).collect();
        let [name, count] = fields[0][..] else { panic!("resources.txt has the line: {line}") };
        let resources = Resources::parse(fields.get(column)?)?;
        Some((name.to_owned(), (count.parse().ok()?, resources)))
    };
    text.lines().filter(|line| !line.starts_with('#') && !digests::is_digest(line)).filter_map(of_line).collect()
}

/// The differences between the kernels of each line, those found of them, and their budget, a line for each.
fn differences(
    text: &str,
    capability: u32,
    counts: &BTreeMap<String, usize>,
    found: &Lines,
    is_whole: bool,
) -> Vec<String> {
    let budget = budget(text, capability);
    let mut differences = Vec::new();
    for (name, count) in counts {
        let Some((planned, allowed)) = budget.get(name) else {
            differences.push(format!("{name} has no line"));
            continue;
        };
        let keeps = found.get(name).is_none_or(|(compiled, resources)| {
            // Some kernels of a line take no more than all of them.
            if compiled == count { resources == allowed } else { resources.worse(*allowed) == *allowed }
        });
        if planned != count || !keeps {
            let take = found.get(name).map(|(compiled, resources)| format!(", {compiled} take {}", resources.text()));
            differences.push(format!(
                "{name} on sm_{capability}: {count} kernels{}, the table has {planned} with {}",
                take.unwrap_or_default(),
                allowed.text()
            ));
        }
    }
    if is_whole {
        let gone = budget.keys().filter(|name| !counts.contains_key(*name));
        differences.extend(gone.map(|name| format!("{name} has a line and is no kernel")));
    }
    differences
}

/// Asserts that the compiled ones of the kernels `keys` take what the table says, neither more, nor so much less that
/// the table would allow a mistake later.
pub fn assert_within_budget(text: &str, capability: u32, keys: &[KernelKey], compiled: &[KernelKey], log: &str) {
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        return;
    }
    // Some kernels of a template, while one is being written, are not all of a line.
    let is_whole = keys.len() == catalogue().len();
    let found = lines_of(capability, keys, compiled, log);
    let differences = differences(text, capability, &counts(keys), &found, is_whole);
    assert!(
        differences.is_empty(),
        "registers, spilled bytes, stack, shared memory or resident threads of kernels have changed; if that is meant, \
         write the table with `make kernel-resources`, and look at its difference:\n{}",
        differences.join("\n")
    );
}

#[test]
fn the_table_is_written_where_that_is_asked_for() {
    if std::env::var_os(WRITE_VARIABLE).is_none() {
        return println!("skipped: `make kernel-resources` writes the table");
    }
    let library = library().expect("NVRTC, in GT_CUDA_LIBRARIES");
    let keys = asked_for(catalogue());
    // Devices of the oldest capability are not in the table, but have every kernel.
    let for_the_oldest = without_tensor_cores(keys.clone());
    if !for_the_oldest.is_empty() {
        compile(OLDEST, &for_the_oldest).expect("NVRTC, as before");
    }
    let is_whole = keys.len() == catalogue().len();
    let before = std::fs::read_to_string(path()).unwrap_or_default();
    let architectures = CAPABILITIES.map(|capability| {
        let compiled = compile(capability, &keys).expect("NVRTC, as before");
        // `cargo test` does not compile again what has the digests that are written below.
        if TESTED.contains(&capability) {
            assert_as_written(&keys, &compiled);
        }
        let mut lines = if is_whole { Lines::new() } else { budget(&before, capability) };
        lines.extend(lines_of(capability, &keys, &keys, &compiled.log));
        lines
    });
    let mut of_templates = if is_whole { Digests::new() } else { digests::parse(&before) };
    of_templates.extend(digests::digests(&digests::compiler(&library), &keys));
    std::fs::write(path(), table(&architectures, &of_templates)).expect("a folder of this repository");
}

#[test]
fn resident_threads_are_those_of_nvidias_calculator() {
    // Threads, registers and shared memory; on 8.0 and on 9.0.
    for ((threads, registers, shared), expected) in [
        ((256, 32, 0), (2048, 2048)),
        ((256, 33, 0), (1536, 1536)),
        ((256, 64, 0), (1024, 1024)),
        ((128, 168, 49_152), (384, 384)),
        ((128, 128, 81_920), (256, 256)),
        ((128, 64, 65_536), (256, 384)),
        ((1024, 64, 0), (1024, 1024)),
        ((1024, 65, 0), (0, 0)),
        ((32, 16, 0), (1024, 1024)),
    ] {
        let found = [80, 90].map(|capability| resident_threads(capability, threads, registers, shared));
        assert_eq!((found[0], found[1]), expected, "{threads} threads, {registers} registers, {shared} bytes");
    }
}

/// The log of a compilation of these kernels that all take the same.
fn log_of(keys: &[KernelKey], registers: u32, spilled: u32) -> String {
    let of = |key: &KernelKey| {
        format!(
            "ptxas info : Function properties for {}\n    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill \
             loads\nptxas info : Used {registers} registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]\n",
            key.name()
        )
    };
    keys.iter().map(of).collect()
}

#[test]
fn a_kernel_beyond_its_budget_is_named() {
    let keys = &catalogue()[..1];
    let name = keys[0].name();
    let lines = |registers, spilled| lines_of(90, keys, keys, &log_of(keys, registers, spilled));
    let text = table(&[lines(32, 0), lines(32, 0), lines(32, 0)], &Digests::new());
    let found = |lines: &Lines| differences(&text, 90, &counts(keys), lines, true);
    assert_eq!(found(&lines(32, 0)), [""; 0]);
    for beyond in [lines(33, 0), lines(32, 8), lines(31, 0)] {
        let found = found(&beyond);
        assert!(found.len() == 1 && found[0].starts_with(&format!("{name} on sm_90: 1 kernels, 1 take ")), "{found:?}");
    }
    // A kernel that was not compiled has its line, and a line its kernel.
    assert_eq!(found(&Lines::new()), [""; 0]);
    assert_eq!(
        differences(&text, 90, &BTreeMap::new(), &Lines::new(), true),
        [format!("{name} has a line and is no kernel")]
    );
    let without = table(&[Lines::new(), Lines::new(), Lines::new()], &Digests::new());
    assert_eq!(differences(&without, 90, &counts(keys), &Lines::new(), true), [format!("{name} has no line")]);
}

#[test]
fn some_kernels_of_a_line_take_at_most_its_figures() {
    let all = catalogue();
    let of_elementwise = all.into_iter().filter(|key| key.template.name == "elementwise");
    let keys: Vec<KernelKey> = of_elementwise.collect();
    let counts = counts(&keys);
    let lines = |compiled: &[KernelKey], registers| lines_of(90, &keys, compiled, &log_of(compiled, registers, 0));
    let whole = lines(&keys, 32);
    let text = table(&[whole.clone(), whole.clone(), whole], &Digests::new());
    let found = |compiled: &[KernelKey], registers| differences(&text, 90, &counts, &lines(compiled, registers), true);
    let (some, line) = (&keys[..1], line_names(&keys)[0].clone());
    assert!(counts[&line] > 1 && counts[&line] < keys.len());
    assert_eq!((found(some, 32), found(some, 20)), (vec![], vec![]));
    assert_eq!(found(some, 33).len(), 1);
    assert!(found(some, 33)[0].starts_with(&format!("{line} on sm_90: {} kernels, 1 take 33 ", counts[&line])));
    // All of them take exactly its figures, and are as many as it says.
    assert_eq!(found(&keys, 20).len(), counts.len());
    let mut fewer = counts.clone();
    fewer.insert(line, 1);
    assert_eq!(differences(&text, 90, &fewer, &Lines::new(), true).len(), 1);
}
