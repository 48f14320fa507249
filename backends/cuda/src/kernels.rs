//! The kernels of a device: compiled beforehand or at first use, stored on disk, and loaded.

use crate::compile::background::{BackgroundCompiler, image};
use crate::compile::compiler::{Compiler, Image};
use crate::compile::prebuilt::{Architecture, Prebuilt};
use crate::compile::store::Store;
use crate::driver::{self, Driver, KernelFunction};
use crate::error::failed;
use crate::program::{Program, Traversal};
use crate::template::{KernelKey, alike, source, together};
use gt_backend::ExecError;
use std::collections::HashMap;
use std::sync::Arc;

/// A program is compiled after more occurrences than this. How far the device is behind decides which instructions are
/// fused, so some programs never recur.
const SEEN_BEFORE_COMPILED: u32 = 2;
/// The most programs that are remembered; beyond that, those without a kernel are forgotten.
const PROGRAMS_MAX: usize = 4096;

/// The kernels of one device.
pub struct Kernels {
    driver: Arc<dyn Driver>,
    compiler: Arc<dyn Compiler>,
    store: Store,
    /// Images that were compiled beforehand.
    prebuilt: Option<Prebuilt>,
    loaded: HashMap<u128, KernelFunction>,
    /// Fused programs, which have no key.
    programs: HashMap<Program, Seen>,
    /// The kernel of [`Traversal::Gathered`] for that of [`Traversal::Straight`].
    several: HashMap<KernelFunction, KernelFunction>,
    background: BackgroundCompiler<(Program, Traversal)>,
    /// Whether a program is compiled at its first occurrence, and the worker waits for it.
    at_once: bool,
}

/// The number of a program's occurrences, and its kernels.
struct Seen {
    times: u32,
    kernels: [ProgramKernel; Traversal::ALL.len()],
}

/// The kernel of a program.
#[derive(Clone)]
enum ProgramKernel {
    /// Nobody has asked for it.
    None,
    /// A thread compiles it.
    Compiling,
    /// It cannot be compiled or loaded.
    Failed(ExecError),
    Loaded(KernelFunction),
}

impl Kernels {
    /// The kernels of a device, none of them loaded yet.
    pub fn new(driver: Arc<dyn Driver>, compiler: Box<dyn Compiler>, store: Store) -> Kernels {
        let compiler: Arc<dyn Compiler> = compiler.into();
        Kernels {
            driver,
            background: BackgroundCompiler::new(compiler.clone(), store.clone()),
            compiler,
            store,
            prebuilt: None,
            loaded: HashMap::new(),
            programs: HashMap::new(),
            several: HashMap::new(),
            at_once: false,
        }
    }

    /// Looks for kernels among these images before the compiler is asked.
    pub fn use_prebuilt(&mut self, prebuilt: Prebuilt) {
        self.prebuilt = Some(prebuilt);
    }

    /// The architecture of the images that were compiled beforehand, if there are any.
    pub fn prebuilt_for(&self) -> Option<Architecture> {
        self.prebuilt.as_ref().map(Prebuilt::architecture)
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
        if let Some(function) = self.load_prebuilt(key) {
            return Ok(function);
        }
        // With a slow compiler, all kernels of the dtype are compiled together.
        let keys = if self.compiler.takes_many() { alike(key) } else { vec![*key] };
        let image = self.image(&key.name(), &source(&keys))?;
        self.load_image(&keys, &image).map_err(failed)?;
        self.loaded.get(&key.id()).copied().ok_or_else(|| ExecError::internal(format!("no kernel {}", key.name())))
    }

    /// Loads an image of these kernels.
    fn load_image(&mut self, keys: &[KernelKey], image: &Image) -> driver::Result<()> {
        let module = self.driver.load(image)?;
        for key in keys {
            let function = self.driver.function(module, &key.name())?;
            self.loaded.insert(key.id(), function);
        }
        Ok(())
    }

    /// The kernel of a key from the images that were compiled beforehand.
    fn load_prebuilt(&mut self, key: &KernelKey) -> Option<KernelFunction> {
        let prebuilt = self.prebuilt.as_ref()?;
        let keys = together(key);
        let image = prebuilt.image(&source(&keys))?;
        match self.load_image(&keys, &image) {
            Ok(()) => self.loaded.get(&key.id()).copied(),
            Err(error) => {
                self.prebuilt.as_ref()?.give_up(&error.to_string());
                None
            }
        }
    }

    /// Counts an occurrence of a program, and returns its kernel if that is there. A program that occurs often enough
    /// is compiled by another thread, and until then its instructions run one by one.
    ///
    /// # Errors
    /// As [`Kernels::get`].
    pub fn ready(&mut self, program: &Program, walk: Traversal) -> Result<Option<KernelFunction>, ExecError> {
        self.collect(false);
        let Some(seen) = self.programs.get_mut(program) else {
            self.remember(program);
            return if self.at_once { self.program(program, walk).map(Some) } else { Ok(None) };
        };
        seen.times = seen.times.saturating_add(1);
        match &seen.kernels[walk as usize] {
            ProgramKernel::Loaded(function) => Ok(Some(*function)),
            ProgramKernel::Failed(error) => Err(error.clone()),
            ProgramKernel::None if self.at_once => self.program(program, walk).map(Some),
            ProgramKernel::None if seen.times > SEEN_BEFORE_COMPILED => {
                seen.kernels[walk as usize] = ProgramKernel::Compiling;
                self.background.begin((program.clone(), walk), program.name(), program.source(walk))?;
                Ok(None)
            }
            ProgramKernel::None | ProgramKernel::Compiling => Ok(None),
        }
    }

    /// The kernel that does several launches of `kernel`, a program's kernel of [`Traversal::Straight`].
    #[inline]
    pub fn several(&self, kernel: KernelFunction) -> Option<KernelFunction> {
        self.several.get(&kernel).copied()
    }

    /// Notes that launches of `kernel`, that of `program` for [`Traversal::Straight`], follow each other. The kernel
    /// for several is compiled as [`Kernels::ready`] compiles; without one, each launch goes by itself.
    pub fn repeated(&mut self, kernel: KernelFunction, program: &Program) {
        match self.ready(program, Traversal::Gathered) {
            Ok(Some(several)) => {
                self.several.insert(kernel, several);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(target: "gtd::compile", %error, "launches are not gathered"),
        }
    }

    /// Notes the first occurrence of a program.
    fn remember(&mut self, program: &Program) {
        if self.programs.len() >= PROGRAMS_MAX {
            let is_used = |kernel: &ProgramKernel| !matches!(kernel, ProgramKernel::None);
            self.programs.retain(|_, seen| seen.kernels.iter().any(is_used));
        }
        let kernels = [const { ProgramKernel::None }; Traversal::ALL.len()];
        self.programs.insert(program.clone(), Seen { times: 1, kernels });
    }

    /// Compiles each program at its first occurrence from here on.
    pub fn compile_programs_at_once(&mut self) {
        self.at_once = true;
    }

    /// Waits for the kernels that other threads compile.
    pub fn await_compiled(&mut self) {
        self.collect(true);
    }

    /// Loads the kernels that other threads have compiled.
    fn collect(&mut self, wait: bool) {
        while let Some(((program, walk), image)) = self.background.next(wait) {
            let kernel = image.and_then(|image| self.loaded_from(&program, &image));
            if let Some(seen) = self.programs.get_mut(&program) {
                seen.kernels[walk as usize] = kernel.map_or_else(ProgramKernel::Failed, ProgramKernel::Loaded);
            }
        }
    }

    fn loaded_from(&self, program: &Program, image: &Image) -> Result<KernelFunction, ExecError> {
        let load = |module| self.driver.function(module, &program.name());
        self.driver.load(image).and_then(load).map_err(failed)
    }

    /// The kernel of a program, which is compiled now unless it is there.
    ///
    /// # Errors
    /// As [`Kernels::get`].
    pub fn program(&mut self, program: &Program, walk: Traversal) -> Result<KernelFunction, ExecError> {
        if let Some(Seen { kernels, .. }) = self.programs.get(program)
            && let ProgramKernel::Loaded(function) = kernels[walk as usize]
        {
            return Ok(function);
        }
        let image = self.image(&program.name(), &program.source(walk))?;
        let function = self.loaded_from(program, &image)?;
        if let Some(seen) = self.programs.get_mut(program) {
            seen.kernels[walk as usize] = ProgramKernel::Loaded(function);
        }
        Ok(function)
    }

    fn image(&self, name: &str, source: &str) -> Result<Image, ExecError> {
        image(&*self.compiler, &self.store, name, source)
    }
}
