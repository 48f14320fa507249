//! The kernels: which there are, what their source is, and how they get onto the device.
//!
//! A [`Template`] is a family of kernels that one Rust file launches; a [`Key`] names one of them: the template for an
//! op, dtypes and a variant. A kernel is compiled when it is first asked for, and kept on disk. Every key that can be
//! asked for is in its template's catalogue, so that a test compiles them all without a device.

use crate::compile::{Compiler, Image, Store};
use crate::driver::{Driver, Function};
use crate::program::{Program, Walk};
use gt_backend::ExecError;
use gt_ops::{DType, Op};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// A program that came by no more often than this is not compiled: what is fused depends on how far the device is
/// behind, so some programs never come again.
const SEEN_BEFORE_COMPILED: u32 = 2;
/// Programs that are remembered; past this, those that were not compiled are forgotten.
const PROGRAMS_MAX: usize = 4096;

/// A header that kernels include, by its name in `kernels/`.
pub type Header = (&'static str, &'static str);

/// What every kernel may include.
pub static HEADERS: &[Header] = &[
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("attention_mma.cuh", include_str!("../kernels/attention_mma.cuh")),
    ("checks.cuh", include_str!("../kernels/checks.cuh")),
    ("columns.cuh", include_str!("../kernels/columns.cuh")),
    ("create.cuh", include_str!("../kernels/create.cuh")),
    ("elementwise.cuh", include_str!("../kernels/elementwise.cuh")),
    ("index.cuh", include_str!("../kernels/index.cuh")),
    ("loss.cuh", include_str!("../kernels/loss.cuh")),
    ("math.cuh", include_str!("../kernels/math.cuh")),
    ("matmul.cuh", include_str!("../kernels/matmul.cuh")),
    ("mma.cuh", include_str!("../kernels/mma.cuh")),
    ("move.cuh", include_str!("../kernels/move.cuh")),
    ("norm.cuh", include_str!("../kernels/norm.cuh")),
    ("philox.cuh", include_str!("../kernels/philox.cuh")),
    ("reduce.cuh", include_str!("../kernels/reduce.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("scan.cuh", include_str!("../kernels/scan.cuh")),
    ("search.cuh", include_str!("../kernels/search.cuh")),
    ("sort.cuh", include_str!("../kernels/sort.cuh")),
    ("special.cuh", include_str!("../kernels/special.cuh")),
    ("team.cuh", include_str!("../kernels/team.cuh")),
    ("types.cuh", include_str!("../kernels/types.cuh")),
    ("walk.cuh", include_str!("../kernels/walk.cuh")),
    ("window.cuh", include_str!("../kernels/window.cuh")),
];

/// A family of kernels.
pub struct Template {
    /// Its name, which begins those of its kernels.
    pub name: &'static str,
    /// The headers it includes.
    pub includes: &'static [&'static str],
    /// The code of a kernel called [`Key::name`].
    pub code: fn(&Key) -> String,
    /// Every key that its file asks for.
    pub catalogue: fn() -> Vec<Key>,
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

/// One kernel.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its family.
    pub template: &'static Template,
    /// The op, where the code depends on it.
    pub op: Option<Op>,
    /// The dtypes, as many as the code depends on.
    pub dtypes: [Option<DType>; 3],
    /// What else it depends on, as its template says.
    pub variant: u32,
}

impl Key {
    /// A kernel for an op of a dtype.
    pub const fn new(template: &'static Template, op: Option<Op>, dtype: Option<DType>, variant: u32) -> Key {
        Key { template, op, dtypes: [dtype, None, None], variant }
    }

    /// The kernel's name in the code.
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

    fn id(&self) -> u128 {
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

/// The name of a dtype in kernels.
pub fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "u8",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The whole source of kernels of one template.
pub fn source(keys: &[Key]) -> String {
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

/// Every template, by the file that launches it.
#[rustfmt::skip]
pub static TEMPLATES: &[&[&Template]] = &[
    crate::columns::TEMPLATES,
    crate::create::TEMPLATES,
    crate::elementwise::TEMPLATES,
    crate::matmul::TEMPLATES,
    crate::index::TEMPLATES,
    crate::strided::TEMPLATES,
    crate::reduce::TEMPLATES,
    crate::rows::TEMPLATES,
    crate::scan::TEMPLATES,
    crate::search::TEMPLATES,
    crate::sort::TEMPLATES,
    crate::transfer::TEMPLATES,
    crate::window::TEMPLATES,
];

/// Every kernel that can be asked for by a key.
pub fn catalogue() -> Vec<Key> {
    TEMPLATES.iter().copied().flatten().flat_map(|template| (template.catalogue)()).collect()
}

/// The kernels of one device.
pub struct Kernels {
    driver: Arc<dyn Driver>,
    compiler: Box<dyn Compiler>,
    store: Store,
    loaded: HashMap<u128, Function>,
    /// Kernels that are made of several instructions rather than listed.
    programs: HashMap<Program, Seen>,
    seen_before_compiled: u32,
}

/// How often a program came by, and its kernels.
struct Seen {
    times: u32,
    loaded: [Option<Function>; Walk::ALL.len()],
}

impl Kernels {
    /// None is loaded yet.
    pub fn new(driver: Arc<dyn Driver>, compiler: Box<dyn Compiler>, store: Store) -> Kernels {
        Kernels {
            driver,
            compiler,
            store,
            loaded: HashMap::new(),
            programs: HashMap::new(),
            seen_before_compiled: SEEN_BEFORE_COMPILED,
        }
    }

    /// The kernel, compiled and loaded if it has not been used yet.
    ///
    /// # Errors
    /// [`ExecError::Internal`] where it cannot be compiled or loaded.
    #[inline]
    pub fn get(&mut self, key: &Key) -> Result<Function, ExecError> {
        match self.loaded.get(&key.id()) {
            Some(function) => Ok(*function),
            None => self.load(key),
        }
    }

    #[cold]
    fn load(&mut self, key: &Key) -> Result<Function, ExecError> {
        // Where each run of the compiler is dear, all kernels of the dtype come in one.
        let keys: Vec<Key> = if self.compiler.takes_many() {
            let all = (key.template.catalogue)();
            debug_assert!(all.iter().any(|other| other.id() == key.id()), "{} is in no catalogue", key.name());
            all.into_iter().filter(|other| other.dtypes == key.dtypes).collect()
        } else {
            vec![*key]
        };
        let image = self.image(&key.name(), &source(&keys))?;
        let module = self.driver.load(&image).map_err(crate::failed)?;
        for key in &keys {
            let function = self.driver.function(module, &key.name()).map_err(crate::failed)?;
            self.loaded.insert(key.id(), function);
        }
        self.loaded.get(&key.id()).copied().ok_or_else(|| ExecError::internal(format!("no kernel {}", key.name())))
    }

    /// Whether a program comes by often enough to be compiled.
    pub fn is_worth_it(&mut self, program: &Program) -> bool {
        if let Some(seen) = self.programs.get_mut(program) {
            seen.times += 1;
            return seen.times > self.seen_before_compiled;
        }
        if self.programs.len() >= PROGRAMS_MAX {
            self.programs.retain(|_, seen| seen.loaded.iter().any(Option::is_some));
        }
        self.programs.insert(program.clone(), Seen { times: 1, loaded: [None; Walk::ALL.len()] });
        self.seen_before_compiled == 0
    }

    /// From now on, every program is worth it.
    pub fn compile_programs_at_once(&mut self) {
        self.seen_before_compiled = 0;
    }

    /// The kernel of a program that is worth it.
    ///
    /// # Errors
    /// As [`Kernels::get`].
    pub fn program(&mut self, program: &Program, walk: Walk) -> Result<Function, ExecError> {
        if let Some(Seen { loaded, .. }) = self.programs.get(program)
            && let Some(function) = loaded[walk as usize]
        {
            return Ok(function);
        }
        let name = program.name();
        let image = self.image(&name, &program.source(walk))?;
        let load = |module| self.driver.function(module, &name);
        let function = self.driver.load(&image).and_then(load).map_err(crate::failed)?;
        if let Some(seen) = self.programs.get_mut(program) {
            seen.loaded[walk as usize] = Some(function);
        }
        Ok(function)
    }

    fn image(&self, name: &str, source: &str) -> Result<Image, ExecError> {
        self.store.get_or_make(&self.compiler.identity(), source, || {
            tracing::debug!(target: "gtd::cuda", name, "compiles a kernel");
            self.compiler.compile(name, source)
        })
    }
}
