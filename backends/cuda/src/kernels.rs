//! The kernels of a device: compiled at first use, stored on disk, and loaded.

use crate::compile::compiler::{Compiler, Image};
use crate::compile::store::Store;
use crate::driver::{Driver, KernelFunction};
use crate::error::failed;
use crate::program::{Program, Traversal};
use crate::template::{KernelKey, source};
use gt_backend::ExecError;
use std::collections::HashMap;
use std::sync::Arc;

/// A program is compiled after this many occurrences. Which instructions are fused depends on how far the device is
/// behind, so some programs never recur.
const SEEN_BEFORE_COMPILED: u32 = 2;
/// The most programs that are remembered; beyond that, those without a kernel are forgotten.
const PROGRAMS_MAX: usize = 4096;

/// The kernels of one device.
pub struct Kernels {
    driver: Arc<dyn Driver>,
    compiler: Box<dyn Compiler>,
    store: Store,
    loaded: HashMap<u128, KernelFunction>,
    /// Fused programs, which have no key.
    programs: HashMap<Program, Seen>,
    seen_before_compiled: u32,
}

/// The number of a program's occurrences, and its kernels.
struct Seen {
    times: u32,
    loaded: [Option<KernelFunction>; Traversal::ALL.len()],
}

impl Kernels {
    /// The kernels of a device, none of them loaded yet.
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

    /// The kernel of a key, compiled and loaded at first use.
    ///
    /// # Errors
    /// [`ExecError::Internal`] if it cannot be compiled or loaded.
    #[inline]
    pub fn get(&mut self, key: &KernelKey) -> Result<KernelFunction, ExecError> {
        match self.loaded.get(&key.id()) {
            Some(function) => Ok(*function),
            None => self.load(key),
        }
    }

    #[cold]
    fn load(&mut self, key: &KernelKey) -> Result<KernelFunction, ExecError> {
        // With a slow compiler, all kernels of the dtype are compiled together.
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

    /// Counts an occurrence of a program, and returns whether the program is worth compiling.
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

    /// Compiles each program at its first occurrence from here on.
    pub fn compile_programs_at_once(&mut self) {
        self.seen_before_compiled = 0;
    }

    /// The kernel of a program that [`is_worth_it`](Self::is_worth_it).
    ///
    /// # Errors
    /// As [`Kernels::get`].
    pub fn program(&mut self, program: &Program, walk: Traversal) -> Result<KernelFunction, ExecError> {
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
            tracing::debug!(target: "gtd::compile", name, "compiles a kernel");
            self.compiler.compile(name, source)
        })
    }
}
