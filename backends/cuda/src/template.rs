//! Templates of kernels, and the keys of single kernels.
//!
//! A [`Template`] is a family of kernels that one Rust file launches; a [`KernelKey`] names one of them by template,
//! op, dtypes and variant.

use gt_ops::{DType, Op};
use std::collections::HashMap;
use std::fmt::Write;

/// A family of kernels.
pub struct Template {
    /// The template's name; the names of its kernels begin with `gt_` and this.
    pub name: &'static str,
    /// The headers that its source includes.
    pub includes: &'static [&'static str],
    /// The code of the kernel called [`KernelKey::name`].
    pub code: fn(&KernelKey) -> String,
    /// Every key that the backend may ask for.
    pub catalogue: fn() -> Vec<KernelKey>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Template) -> bool {
        std::ptr::eq(self, other)
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The key of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct KernelKey {
    /// The template.
    pub template: &'static Template,
    /// The op, if the code depends on it.
    pub op: Option<Op>,
    /// The dtypes, as many as the code depends on.
    pub dtypes: [Option<DType>; 3],
    /// A number that selects among variants of the code, as the template defines it.
    pub variant: u32,
}

impl KernelKey {
    /// The key for an op and a dtype.
    pub const fn new(template: &'static Template, op: Option<Op>, dtype: Option<DType>, variant: u32) -> KernelKey {
        KernelKey { template, op, dtypes: [dtype, None, None], variant }
    }

    /// The kernel's name in the source.
    pub fn name(&self) -> String {
        let mut name = format!("gt_{}", self.template.name);
        if let Some(op) = self.op {
            let _ = write!(name, "_{}", op.name());
        }
        for dtype in self.dtypes.iter().flatten() {
            let _ = write!(name, "_{}", c_name(*dtype));
        }
        let _ = write!(name, "_{}", self.variant);
        name
    }

    pub(crate) fn id(&self) -> u128 {
        let dtype = |i: usize| self.dtypes[i].map_or(0xff, |dtype| dtype as u128 & 0xff);
        let op = self.op.map_or(0xffff, |op| op as u128);
        (std::ptr::from_ref(self.template) as usize as u128) << 72
            | op << 56
            | dtype(0) << 48
            | dtype(1) << 40
            | dtype(2) << 32
            | self.variant as u128
    }
}

/// The C type of a dtype in kernels.
pub fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "u8",
        DType::I8 => "i8",
        DType::I16 | DType::U16 => "i16",
        DType::I32 | DType::U32 => "i32",
        DType::I64 | DType::U64 => "i64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 | DType::C64 => "f32",
        DType::F64 | DType::C128 => "f64",
    }
}

/// The most kernels that are compiled beforehand as one image, which is loaded as a whole.
const TOGETHER_MAX: usize = 16;

/// The kernels of the same template and dtypes, in the order of the catalogue.
pub fn alike(key: &KernelKey) -> Vec<KernelKey> {
    let all = (key.template.catalogue)();
    debug_assert!(all.iter().any(|other| other.id() == key.id()), "{} is in no catalogue", key.name());
    all.into_iter().filter(|other| other.dtypes == key.dtypes).collect()
}

/// The kernels that are compiled beforehand together with this one, itself among them.
pub fn together(key: &KernelKey) -> Vec<KernelKey> {
    let alike = alike(key);
    let has = |group: &&[KernelKey]| group.iter().any(|other| other.id() == key.id());
    alike.chunks(TOGETHER_MAX).find(has).map_or_else(Vec::new, <[KernelKey]>::to_vec)
}

/// The kernels of each image that is compiled beforehand, of all kernels of some templates.
pub fn images(keys: &[KernelKey]) -> Vec<Vec<KernelKey>> {
    let mut alike: Vec<Vec<KernelKey>> = Vec::new();
    let mut places = HashMap::new();
    for key in keys {
        let at = *places.entry((std::ptr::from_ref(key.template), key.dtypes)).or_insert_with(|| {
            alike.push(Vec::new());
            alike.len() - 1
        });
        alike[at].push(*key);
    }
    alike.iter().flat_map(|keys| keys.chunks(TOGETHER_MAX)).map(<[KernelKey]>::to_vec).collect()
}

/// The source of several kernels of one template.
pub fn source(keys: &[KernelKey]) -> String {
    let mut text = String::new();
    if let Some(key) = keys.first() {
        for include in key.template.includes {
            let _ = writeln!(text, "#include \"{include}\"");
        }
    }
    for key in keys {
        text.push_str(&(key.template.code)(key));
        text.push('\n');
    }
    text
}
