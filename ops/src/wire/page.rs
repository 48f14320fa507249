//! `docs/internals/wire.md`, rendered from the layouts.

use crate::dtype::DType;
use crate::event::{EventKind, EventWords};
use crate::op::CONTROL_IDS;
use crate::packing::{CodesDoc, FieldDoc, LayoutDoc, PackedLayout};
use crate::row::{AttrKind, ROWS};
use crate::wire::SLOTS_MAX;
use crate::wire::layouts::*;
use std::fmt::Write;

/// The layouts of the attributes of one kind: in the first slot, and in extension slots.
fn attributes(kind: AttrKind) -> (Option<&'static LayoutDoc>, Vec<&'static LayoutDoc>) {
    const SHAPE: &LayoutDoc = &ShapeSlot::DOC;
    match kind {
        AttrKind::None | AttrKind::DType => (None, vec![]),
        AttrKind::Shape | AttrKind::Create => (None, vec![SHAPE]),
        AttrKind::Permutation => (Some(&PermutationAttrs::DOC), vec![]),
        AttrKind::Axis => (Some(&AxisAttrs::DOC), vec![]),
        AttrKind::Axes => (Some(&AxesAttrs::DOC), vec![]),
        AttrKind::Slice => (None, vec![&SliceSlot::DOC, &SliceSlot::DOC, SHAPE]),
        AttrKind::Window => {
            (Some(&WindowAttrs::DOC), vec![&WindowSizesSlot::DOC, &WindowStepsSlot::DOC, &WindowPaddingSlot::DOC])
        }
        AttrKind::Random => (Some(&RandomAttrs::DOC), vec![SHAPE]),
        AttrKind::Loss => (Some(&LossAttrs::DOC), vec![]),
        AttrKind::Attention => (Some(&AttentionAttrs::DOC), vec![]),
    }
}

/// Writes a heading and a description, unless the description repeats the title.
fn heading(text: &mut String, level: &str, title: &str, about: &[&str]) {
    write!(text, "\n{level} {title}\n\n").unwrap();
    let about = about.join("");
    if about.trim().trim_end_matches('.') != title {
        write!(text, "{}\n\n", about.trim()).unwrap();
    }
}

/// Writes a heading and a row for each field.
fn layout(text: &mut String, level: &str, title: &str, doc: &LayoutDoc) {
    heading(text, level, title, doc.about);
    text.push_str("| word | bits | field | meaning |\n| --- | --- | --- | --- |\n");
    for FieldDoc { range, words, name, meaning } in doc.fields {
        let last = range.word + words - 1;
        let word = if *words == 1 { range.word.to_string() } else { format!("{}–{last}", range.word) };
        let bits = match (range.low, range.high - 1) {
            (0, 63) => String::new(),
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low}–{high}"),
        };
        writeln!(text, "| {word} | {bits} | `{name}` | {meaning} |").unwrap();
    }
}

fn codes(text: &mut String, level: &str, title: &str, doc: &CodesDoc) {
    heading(text, level, title, doc.about);
    text.push_str("| code | meaning |\n| --- | --- |\n");
    for (code, meaning) in doc.codes {
        writeln!(text, "| {code} | {meaning} |").unwrap();
    }
}

const PREFACE: &str = "\
# The wire

Instructions and commands travel to the daemon and its workers, and completions back, in slots of 64 bytes: eight
little-endian words of 64 bits. A bit that no field names is 0. This page is written by a test from the declarations in
`ops/src/wire/layouts.rs`, which the encoder and the decoder use; `ops/tests/golden/wire.txt` has an example of each slot.

A command is a first slot and the extension slots that its header announces";

fn page() -> String {
    let mut text = format!("{PREFACE}, {SLOTS_MAX} slots at most.\n");
    layout(&mut text, "##", "Header", &Header::DOC);
    writeln!(text, "\nWire ids below {CONTROL_IDS} are commands; the others are ops of the op table.").unwrap();
    codes(&mut text, "##", "Commands", &id::DOC);
    layout(&mut text, "###", "Free", &FreeSlot::DOC);
    layout(&mut text, "###", "Fetch, write", &TransferSlot::DOC);
    layout(&mut text, "###", "Tensor header", &TensorHeader::DOC);
    layout(&mut text, "###", "Allocate", &AllocateSlot::DOC);
    layout(&mut text, "###", "Sync", &SyncSlot::DOC);
    layout(&mut text, "###", "Signal", &SignalSlot::DOC);
    layout(&mut text, "###", "Define signal", &DefineSignalSlot::DOC);
    codes(&mut text, "####", "Codes of layouts", &requested_layout::DOC);
    codes(&mut text, "####", "Codes of requests for plans", &requested_compile::DOC);
    layout(&mut text, "###", "Reshard", &ReshardSlot::DOC);
    layout(&mut text, "####", "Placements", &PlacementsSlot::DOC);
    layout(&mut text, "####", "Placement", &PlacementWords::DOC);
    codes(&mut text, "####", "Kinds of placements", &placement_kind::DOC);
    text.push_str("\n## Instructions\n\n");
    text.push_str(
        "An instruction's extension slots are those of its attributes, then those of its operands past the fourth.\n",
    );
    layout(&mut text, "###", "First slot", &OpHeader::DOC);
    layout(&mut text, "###", "First operands", &OperandWords::DOC);
    codes(&mut text, "####", "Kinds of operands", &operand_kind::DOC);
    layout(&mut text, "###", "More operands", &OperandsSlot::DOC);
    text.push_str("\n### Attributes\n\nThe kind of an op's attributes follows from its row in the op table.\n\n");
    text.push_str("| attributes | extension slots | ops |\n| --- | --- | --- |\n");
    let kinds = kinds();
    for kind in &kinds {
        let ops: Vec<_> = ROWS.iter().filter(|row| row.attrs == *kind).map(|row| row.name).collect();
        let ops = if *kind == AttrKind::None { "all others".into() } else { ops.join(", ") };
        writeln!(text, "| {kind:?} | {} | {ops} |", attribute_slots(*kind)).unwrap();
    }
    let mut listed: Vec<&[&str]> = Vec::new();
    for kind in &kinds {
        let (first, extensions) = attributes(*kind);
        for doc in first.into_iter().chain(extensions) {
            if !listed.contains(&doc.about) {
                listed.push(doc.about);
                let name = doc.about[0].trim().split([',', '.']).next().unwrap_or_default();
                layout(&mut text, "####", name, doc);
            }
        }
    }
    text.push_str("\n### Dtypes\n\n| code | dtype |\n| --- | --- |\n");
    for dtype in DType::STORED {
        writeln!(text, "| {} | {dtype} |", dtype as u8).unwrap();
    }
    text.push_str("\n## Completions\n");
    layout(&mut text, "###", "Completion", &CompletionSlot::DOC);
    codes(&mut text, "###", "Faults", &fault::DOC);
    text.push_str("\n## The instruction log\n");
    layout(&mut text, "###", "Event", &EventWords::DOC);
    text.push_str("\n| kind | event |\n| --- | --- |\n");
    for kind in EventKind::ALL {
        writeln!(text, "| {} | {} |", kind as u8, kind.name()).unwrap();
    }
    text
}

/// Every kind of attributes, in the order of their first ops.
fn kinds() -> Vec<AttrKind> {
    let mut kinds = Vec::new();
    for row in ROWS {
        if !kinds.contains(&row.attrs) {
            kinds.push(row.attrs);
        }
    }
    kinds
}

#[test]
fn the_page_of_the_wire_follows_from_the_layouts() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/wire.md");
    if std::env::var_os("GT_WRITE_WIRE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page(), "docs/internals/wire.md is not what `GT_WRITE_WIRE=1 cargo test -p gt-ops` writes");
}

#[test]
fn attributes_take_as_many_slots_as_they_have_layouts() {
    for kind in kinds() {
        assert_eq!(attributes(kind).1.len(), attribute_slots(kind), "{kind:?}");
    }
}

#[test]
fn fields_that_share_a_slot_do_not_overlap() {
    let first = [&Header::DOC, &OpHeader::DOC, &OperandWords::DOC];
    let commands = [
        vec![&FreeSlot::DOC],
        vec![&TransferSlot::DOC],
        vec![&TensorHeader::DOC, &AllocateSlot::DOC],
        vec![&SyncSlot::DOC],
        vec![&SignalSlot::DOC],
        vec![&DefineSignalSlot::DOC],
        vec![&TensorHeader::DOC, &ReshardSlot::DOC],
    ];
    let mut shared: Vec<Vec<&LayoutDoc>> =
        commands.into_iter().map(|layouts| [vec![&Header::DOC], layouts].concat()).collect();
    for kind in kinds() {
        let (attrs, extensions) = attributes(kind);
        shared.push(first.into_iter().chain(attrs).collect());
        shared.extend(extensions.into_iter().map(|doc| vec![doc]));
    }
    shared.extend([
        vec![&PlacementsSlot::DOC],
        vec![&PlacementWords::DOC],
        vec![&CompletionSlot::DOC],
        vec![&EventWords::DOC],
    ]);
    for layouts in shared {
        let mut taken = [0u64; 8];
        for FieldDoc { range, words, name, .. } in layouts.iter().flat_map(|doc| doc.fields) {
            let mask = (u64::MAX >> (64 - (range.high - range.low))) << range.low;
            for word in &mut taken[range.word..range.word + words] {
                // Some fields may overlap another: the reduction of a loss overlaps `tf32`, which losses ignore; the
                // attributes of losses, reductions and attention overlap `replaces`, which these ignore, too; and
                // `first` overlaps the fourth operand, which random ops do not have.
                let exclusive = !matches!(*name, "reduction" | "keepdim" | "converts" | "causal" | "first");
                assert!(*word & mask == 0 || !exclusive, "{name} overlaps another field");
                *word |= mask;
            }
        }
    }
}
