//! The kernels of a device: compiled when they are first asked for, kept on disk, and loaded.

use crate::compile::compiler::{Compiler, Image};
use crate::compile::store::Store;
use crate::driver::{Driver, Function};
use crate::error::failed;
use crate::program::{Program, Traversal};
use crate::template::{KernelKey, source};
use gt_backend::ExecError;
use std::collections::HashMap;
use std::sync::Arc;

/// A program that came by no more often than this is not compiled: what is fused depends on how far the device is
/// behind, so some programs never come again.
const SEEN_BEFORE_COMPILED: u32 = 2;
/// Programs that are remembered; past this, those that were not compiled are forgotten.
const PROGRAMS_MAX: usize = 4096;

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
    loaded: [Option<Function>; Traversal::ALL.len()],
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
    pub fn get(&mut self, key: &KernelKey) -> Result<Function, ExecError> {
        match self.loaded.get(&key.id()) {
            Some(function) => Ok(*function),
            None => self.load(key),
        }
    }

    #[cold]
    fn load(&mut self, key: &KernelKey) -> Result<Function, ExecError> {
        // Where each run of the compiler is dear, all kernels of the dtype come in one.
        let keys: Vec<KernelKey> = if self.compiler.takes_many() {
            let all = (key.template.catalogue)();
            debug_assert!(all.iter().any(|other| other.id() == key.id()), "{} is in no catalogue", key.name());
            all.into_iter().filter(|other| other.dtypes == key.dtypes).collect()
        } else {
            vec![*key]
        };
        let image = self.image(&key.name(), &source(&keys))?;
        let module = self.driver.load(&image).map_err(failed)?;
        for key in &keys {
            let function = self.driver.function(module, &key.name()).map_err(failed)?;
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
        self.programs.insert(program.clone(), Seen { times: 1, loaded: [None; Traversal::ALL.len()] });
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
    pub fn program(&mut self, program: &Program, walk: Traversal) -> Result<Function, ExecError> {
        if let Some(Seen { loaded, .. }) = self.programs.get(program)
            && let Some(function) = loaded[walk as usize]
        {
            return Ok(function);
        }
        let name = program.name();
        let image = self.image(&name, &program.source(walk))?;
        let load = |module| self.driver.function(module, &name);
        let function = self.driver.load(&image).and_then(load).map_err(failed)?;
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
