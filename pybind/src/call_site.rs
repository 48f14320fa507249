//! The line of Python that issues an instruction, found in a few nanoseconds.
//!
//! Python's interfaces tell the running line by a frame object, which the interpreter makes for the purpose: some 100
//! ns an instruction. The interpreter's own record of a call has the same in two words, the code object and the address
//! of the bytecode instruction. Its layout is part of no interface and differs between versions of Python. So it is
//! observed once: the stack as `sys._getframe()` tells it is compared with the memory at each layout that is known, and
//! only one that agrees for every frame of the stack is used. This reads memory through a pipe, where a bad address is
//! an error. On an interpreter without a known layout no lines are kept, and `GT_TRACEBACK=1` is the way to them.
//!
//! A [`CallSite`] has the number of a code object, which [`KnownCodes`] keeps alive, and an offset in its bytecode.
//! Frames of this package and of Python's standard library are passed over: the line is that of the program which
//! called them.

use crate::session;
use gt_client::origin::{self, CallSite, OriginHooks, SourceLine};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyCode};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::os::fd::AsRawFd;

/// The most code objects that are kept alive for their lines; of more, the oldest are forgotten.
const CODES_MAX: usize = 4096;
/// The entries of the cache in front of the table of codes.
const CACHED_CODES: usize = 1024;
/// The most frames of this package that are passed over.
const FRAMES_MAX: usize = 64;
/// The words of a thread's state among which its topmost frame is looked for: the state is larger in every version.
const STATE_WORDS: usize = 24;
/// The frames of the stack that an observed layout must agree with.
const FRAMES_COMPARED: usize = 8;
/// The largest offset of the bytecode in a code object, bytes.
const BYTECODE_OFFSET_MAX: usize = 1024;
/// The bits of a reference to a code object that Python 3.14 uses for itself.
const TAG_BITS: usize = 3;
/// The shift from a code object's address to its entry in the cache: objects are this far apart at least.
const CACHE_SHIFT: u32 = 5;

/// The offsets of the fields of the interpreter's record of a call, in words.
#[derive(Clone, Copy)]
struct FrameWords {
    code: usize,
    previous: usize,
    instruction: usize,
    /// Whether the instruction is a 32-bit number of pairs of bytes, in place of an address.
    is_counted: bool,
    /// The word of the structure that a thread's state has between itself and the topmost frame; none if it points to
    /// the frame.
    link: Option<usize>,
}

/// The layouts of Python 3.13 and newer, 3.12, 3.11, and 3.10.
const KNOWN_FRAMES: [FrameWords; 4] = [
    FrameWords { code: 0, previous: 1, instruction: 7, is_counted: false, link: None },
    FrameWords { code: 0, previous: 1, instruction: 7, is_counted: false, link: Some(0) },
    FrameWords { code: 4, previous: 6, instruction: 7, is_counted: false, link: Some(1) },
    FrameWords { code: 4, previous: 3, instruction: 12, is_counted: true, link: None },
];

/// The layout of this interpreter, as it was observed.
#[derive(Clone, Copy)]
struct FrameLayout {
    words: FrameWords,
    /// The word of the thread's state that leads to the topmost frame.
    top: usize,
    /// The offset of the bytecode in a code object, bytes.
    bytecode: usize,
}

/// A layout that agrees with a stack: its number in [`KNOWN_FRAMES`], and the other fields of [`FrameLayout`].
type Agreeing = (usize, usize, usize);

/// A word at `address`, which must be mapped.
#[inline]
unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller says that the word is mapped; addresses of words are aligned in every layout.
    unsafe { (address as *const usize).read() }
}

/// Reads memory at addresses that may not be mapped.
struct SafeReader {
    from: std::io::PipeReader,
    to: std::io::PipeWriter,
}

impl SafeReader {
    fn new() -> std::io::Result<SafeReader> {
        let (from, to) = std::io::pipe()?;
        Ok(SafeReader { from, to })
    }

    fn word(&mut self, address: usize) -> Option<usize> {
        const BYTES: usize = size_of::<usize>();
        if address == 0 || !address.is_multiple_of(BYTES) {
            return None;
        }
        // SAFETY: the kernel reads the bytes, and answers an address that is not mapped with EFAULT.
        let written = unsafe { libc::write(self.to.as_raw_fd(), address as *const libc::c_void, BYTES) };
        if written != BYTES as isize {
            return None;
        }
        let mut bytes = [0; BYTES];
        std::io::Read::read_exact(&mut self.from, &mut bytes).ok()?;
        Some(usize::from_ne_bytes(bytes))
    }
}

/// A frame as Python's interface tells it: the address of its code object, and the offset in the bytecode.
type ToldFrame = (usize, usize);

fn told_frames(py: Python<'_>) -> PyResult<Vec<ToldFrame>> {
    let mut frames = Vec::new();
    let mut frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    while !frame.is_none() && frames.len() < FRAMES_COMPARED {
        let code = frame.getattr("f_code")?;
        frames.push((code.as_ptr() as usize, frame.getattr("f_lasti")?.extract()?));
        frame = frame.getattr("f_back")?;
    }
    Ok(frames)
}

/// The offset of the bytecode in code objects, if the frames from `top` on are those that Python `told`.
fn bytecode_offset(memory: &mut SafeReader, top: usize, words: FrameWords, told: &[ToldFrame]) -> Option<usize> {
    const BYTES: usize = size_of::<usize>();
    let mut frame = top;
    let mut found = None;
    for (depth, (code, last)) in told.iter().enumerate() {
        let mut here = memory.word(frame.checked_add(words.code * BYTES)?)? & !TAG_BITS;
        if here != *code && depth > 0 {
            // Python 3.12 and newer have a frame of their own between a C function and the Python function that it
            // calls.
            frame = memory.word(frame + words.previous * BYTES)?;
            here = memory.word(frame.checked_add(words.code * BYTES)?)? & !TAG_BITS;
        }
        if here != *code {
            return None;
        }
        let instruction = memory.word(frame + words.instruction * BYTES)?;
        let offset = if words.is_counted {
            (2 * (instruction as u32 as usize) == *last).then_some(0)?
        } else {
            instruction.checked_sub(code + last).filter(|offset| *offset <= BYTECODE_OFFSET_MAX)?
        };
        if *found.get_or_insert(offset) != offset {
            return None;
        }
        frame = memory.word(frame + words.previous * BYTES).unwrap_or_default();
    }
    found
}

/// The layouts that agree with the calling thread's stack.
fn agreeing(py: Python<'_>) -> PyResult<Vec<Agreeing>> {
    const BYTES: usize = size_of::<usize>();
    let told = told_frames(py)?;
    let mut memory = SafeReader::new()?;
    // SAFETY: this thread holds the GIL, as `py` shows, so it has a state.
    let state = unsafe { pyo3::ffi::PyThreadState_Get() } as usize;
    let mut found = Vec::new();
    for (known, words) in KNOWN_FRAMES.into_iter().enumerate() {
        for top in 0..STATE_WORDS {
            let at_top = memory.word(state + top * BYTES);
            let frame = match words.link {
                None => at_top,
                Some(link) => at_top.and_then(|at_top| memory.word(at_top.checked_add(link * BYTES)?)),
            };
            let bytecode = frame.and_then(|frame| bytecode_offset(&mut memory, frame, words, &told));
            found.extend(bytecode.map(|bytecode| (known, top, bytecode)));
        }
    }
    Ok(found)
}

/// The layout of this interpreter's frames; none if no known one agrees with the stack, here and in one more call.
fn observe(py: Python<'_>) -> PyResult<Option<FrameLayout>> {
    let here = agreeing(py)?;
    let deeper = PyCFunction::new_closure(py, None, None, |args, _| agreeing(args.py()))?;
    let call = py.eval(c"lambda function: function()", None, None)?;
    let deeper: Vec<Agreeing> = call.call1((deeper,))?.extract()?;
    let both = here.into_iter().find(|layout| deeper.contains(layout));
    Ok(both.map(|(known, top, bytecode)| FrameLayout { words: KNOWN_FRAMES[known], top, bytecode }))
}

impl FrameLayout {
    /// The topmost frame of the calling thread.
    #[inline]
    fn top(&self, _py: Python<'_>) -> usize {
        // SAFETY: this thread holds the GIL, as `_py` shows, so it has a state, whose word at `top` leads to a frame:
        // `observe` found that for this interpreter.
        unsafe {
            let at_top = word(pyo3::ffi::PyThreadState_Get() as usize + self.top * size_of::<usize>());
            self.words.link.map_or(at_top, |link| word(at_top + link * size_of::<usize>()))
        }
    }

    /// The word `index` of `frame`, which must be one of the calling thread.
    #[inline]
    fn word(frame: usize, index: usize) -> usize {
        // SAFETY: the frames of a thread that holds the GIL neither end nor move.
        unsafe { word(frame + index * size_of::<usize>()) }
    }

    /// The distance of the running instruction of `frame` from its code object, or from its first instruction.
    #[inline]
    fn offset(&self, frame: usize, code: usize) -> u32 {
        let instruction = Self::word(frame, self.words.instruction);
        if self.words.is_counted { 2 * instruction as u32 } else { (instruction - code) as u32 }
    }
}

/// The number that stands for a code object in call sites.
#[derive(Clone, Copy, Default)]
struct CodeNumber {
    /// 0 for what is no code of a program.
    number: u32,
    /// Whether frames of the code are passed over.
    is_passed_over: bool,
}

/// The code objects that call sites name.
#[derive(Default)]
struct KnownCodes {
    /// Entries of `numbers` by the bits of their addresses.
    cache: Vec<(usize, CodeNumber)>,
    numbers: HashMap<usize, CodeNumber>,
    /// The code with number `n` at `n % CODES_MAX`.
    codes: Vec<Option<Py<PyCode>>>,
    last: u32,
}

impl KnownCodes {
    #[inline]
    fn cached_at(code: usize) -> usize {
        (code >> CACHE_SHIFT ^ code >> (CACHE_SHIFT + CACHED_CODES.trailing_zeros())) % CACHED_CODES
    }

    #[inline]
    fn cached(&self, code: usize) -> Option<CodeNumber> {
        let (address, number) = self.cache.get(Self::cached_at(code))?;
        (*address == code).then_some(*number)
    }

    fn put_into_cache(&mut self, code: usize, number: CodeNumber) {
        if self.cache.is_empty() {
            self.cache = vec![(0, CodeNumber::default()); CACHED_CODES];
        }
        self.cache[Self::cached_at(code)] = (code, number);
    }

    /// Numbers `code`. Returns its number, and the code that is forgotten for it.
    fn add(&mut self, code: Py<PyCode>, is_passed_over: bool) -> (CodeNumber, Option<Py<PyCode>>) {
        self.last += 1;
        let number = CodeNumber { number: self.last, is_passed_over };
        let address = code.as_ptr() as usize;
        if self.codes.is_empty() {
            self.codes.resize_with(CODES_MAX, || None);
        }
        let forgotten = self.codes[self.last as usize % CODES_MAX].replace(code);
        if let Some(forgotten) = &forgotten {
            let address = forgotten.as_ptr() as usize;
            self.numbers.remove(&address);
            let cached = &mut self.cache[Self::cached_at(address)];
            if cached.0 == address {
                *cached = (0, CodeNumber::default());
            }
        }
        self.numbers.insert(address, number);
        self.put_into_cache(address, number);
        (number, forgotten)
    }

    fn code(&self, number: u32) -> Option<&Py<PyCode>> {
        let code = self.codes.get(number as usize % CODES_MAX)?.as_ref()?;
        let known = self.numbers.get(&(code.as_ptr() as usize))?;
        (known.number == number).then_some(code)
    }
}

/// The folders whose frames are passed over: those of this package and of Python's standard library.
struct PassedOver {
    package: String,
    library: String,
}

impl PassedOver {
    fn find(py: Python<'_>) -> PyResult<PassedOver> {
        let folder = |module: &str| -> PyResult<String> {
            let file: String = py.import(module)?.getattr("__file__")?.extract()?;
            Ok(file[..file.rfind('/').map_or(0, |end| end + 1)].to_owned())
        };
        Ok(PassedOver { package: folder("gt")?, library: folder("os")? })
    }

    fn has(&self, file: &str) -> bool {
        let is_installed = |file: &str| file.starts_with("site-packages/") || file.starts_with("dist-packages/");
        file.starts_with(&self.package)
            || file.strip_prefix(&self.library).is_some_and(|file| !is_installed(file))
            || file.starts_with("<frozen ")
            || file == "<shim>"
    }
}

/// The state of this module, guarded by the GIL.
struct CallSites {
    /// Whether lines are not looked up, as `gt.debug.record_lines(False)` asks.
    is_off: Cell<bool>,
    layout: OnceCell<Option<FrameLayout>>,
    passed_over: OnceCell<PassedOver>,
    codes: OnceCell<RefCell<KnownCodes>>,
}

// SAFETY: every access takes a `Python` token, which only the thread that holds the GIL has.
unsafe impl Sync for CallSites {}

static SITES: CallSites = CallSites {
    is_off: Cell::new(false),
    layout: OnceCell::new(),
    passed_over: OnceCell::new(),
    codes: OnceCell::new(),
};

impl CallSites {
    /// The place that the calling thread executes.
    #[inline]
    fn here(&self, py: Python<'_>) -> CallSite {
        if self.is_off.get() {
            return 0;
        }
        let layout = match self.layout.get() {
            Some(Some(layout)) => layout,
            Some(None) => return 0,
            None => match self.observe(py) {
                Some(layout) => layout,
                None => return 0,
            },
        };
        let mut frame = layout.top(py);
        let mut outermost = 0;
        for _ in 0..FRAMES_MAX {
            if frame == 0 {
                break;
            }
            let code = FrameLayout::word(frame, layout.words.code) & !TAG_BITS;
            let known = self.codes.get().and_then(|codes| codes.borrow().cached(code));
            let known = known.unwrap_or_else(|| self.look_up(py, code));
            if known.number != 0 {
                outermost = CallSite::from(known.number) << 32 | CallSite::from(layout.offset(frame, code));
                if !known.is_passed_over {
                    break;
                }
            }
            frame = FrameLayout::word(frame, layout.words.previous);
        }
        outermost
    }

    #[cold]
    fn observe(&self, py: Python<'_>) -> Option<&FrameLayout> {
        let observed = observe(py).unwrap_or_default();
        self.layout.get_or_init(|| observed).as_ref()
    }

    /// The number of `code`, which is not in the cache.
    #[cold]
    fn look_up(&self, py: Python<'_>, code: usize) -> CodeNumber {
        let codes = self.codes.get_or_init(RefCell::default);
        let numbered = codes.borrow().numbers.get(&code).copied();
        if let Some(number) = numbered {
            codes.borrow_mut().put_into_cache(code, number);
            return number;
        }
        // SAFETY: a frame has a reference to this object, and the calling thread's frames live.
        let object = unsafe { Bound::from_borrowed_ptr_or_opt(py, code as *mut pyo3::ffi::PyObject) };
        let Some(object) = object.and_then(|object| object.cast_into::<PyCode>().ok()) else {
            return CodeNumber::default();
        };
        let file = object.getattr("co_filename").and_then(|file| file.extract::<String>()).unwrap_or_default();
        if self.passed_over.get().is_none()
            && let Ok(found) = PassedOver::find(py)
        {
            let _ = self.passed_over.set(found);
        }
        let is_passed_over = self.passed_over.get().is_some_and(|passed_over| passed_over.has(&file));
        let (number, forgotten) = codes.borrow_mut().add(object.unbind(), is_passed_over);
        // Its end may run Python code, which comes here again.
        drop(forgotten);
        number
    }

    /// The line of `site`.
    fn line(&self, py: Python<'_>, site: CallSite) -> Option<SourceLine> {
        let layout = self.layout.get().and_then(Option::as_ref)?;
        let code = self.codes.get()?.borrow().code((site >> 32) as u32)?.clone_ref(py).into_bound(py);
        let last = (site as u32).checked_sub(layout.bytecode as u32)?;
        let line = line_at(&code, last).ok()?;
        let function = code.getattr("co_name").and_then(|name| name.extract()).ok()?;
        Some(SourceLine { file: code.getattr("co_filename").ok()?.extract().ok()?, line, function })
    }
}

/// The line of the instruction at offset `last` of `code`.
fn line_at(code: &Bound<'_, PyCode>, last: u32) -> PyResult<u32> {
    let mut line = None;
    for range in code.call_method0("co_lines")?.try_iter()? {
        let (start, end, number): (u32, u32, Option<u32>) = range?.extract()?;
        if (start..end).contains(&last) {
            line = number;
        }
    }
    let first = || code.getattr("co_firstlineno")?.extract();
    line.map_or_else(first, Ok)
}

/// The calling thread's stack without the innermost frames of this package, as Python's tracebacks show it.
fn stack(py: Python<'_>) -> PyResult<String> {
    let mut lines = Vec::new();
    let mut frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    let passed_over = PassedOver::find(py)?;
    while !frame.is_none() {
        let code = frame.getattr("f_code")?;
        let file = code.getattr("co_filename")?.extract::<String>()?;
        if !lines.is_empty() || !passed_over.has(&file) {
            let (line, name): (u32, String) =
                (frame.getattr("f_lineno")?.extract()?, code.getattr("co_name")?.extract()?);
            lines.push(format!("  File \"{file}\", line {line}, in {name}"));
        }
        frame = frame.getattr("f_back")?;
    }
    lines.reverse();
    Ok(lines.join("\n"))
}

/// Installs the client's hooks.
pub fn install_hooks() {
    origin::set_origin_hooks(OriginHooks {
        // SAFETY: only this extension issues instructions in its copy of the client, and it does while it holds the
        // GIL, which it releases for waits alone.
        site: || SITES.here(unsafe { Python::assume_attached() }),
        line: |site| Python::try_attach(|py| SITES.line(py, site))?,
        stack: || Python::try_attach(|py| stack(py).ok())?,
    });
}

/// A line as Python sees it: the file, the number of the line, and the function.
type PyLine = (String, u32, String);

fn line_of(site: CallSite, known: &mut HashMap<CallSite, Option<PyLine>>) -> Option<PyLine> {
    let look_up = || origin::line_of(site).map(|SourceLine { file, line, function }| (file, line, function));
    known.entry(site).or_insert_with(look_up).clone()
}

/// The tensors of this session that are alive, in the order in which they were issued: the id, the bytes of the
/// elements, and the line that issued it, if that is known.
#[pyfunction]
fn live_tensors() -> Vec<(u64, u64, Option<PyLine>)> {
    let Some(session) = session::open() else { return Vec::new() };
    let mut tensors = session.live_tensors();
    tensors.sort_unstable_by_key(|tensor| tensor.id);
    let mut known = HashMap::new();
    tensors.into_iter().map(|tensor| (tensor.id, tensor.bytes, line_of(tensor.site, &mut known))).collect()
}

/// The lines that issued these instructions of this session, of each that is known.
#[pyfunction]
fn lines_of(instructions: Vec<u64>) -> HashMap<u64, PyLine> {
    let Some(session) = session::open() else { return HashMap::new() };
    let mut known = HashMap::new();
    let lines = instructions.into_iter().filter_map(|id| Some((id, line_of(session.site_of(id)?, &mut known)?)));
    lines.collect()
}

/// Whether the lines of instructions are looked up from now on. Returns whether they were.
#[pyfunction]
fn record_lines(_py: Python<'_>, on: bool) -> bool {
    !SITES.is_off.replace(!on)
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(live_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(lines_of, module)?)?;
    module.add_function(wrap_pyfunction!(record_lines, module)?)
}
