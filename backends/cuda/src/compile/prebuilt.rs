//! Kernels that were compiled beforehand: a file beside the program, so that a first start waits for no compiler.
//!
//! The file has a cubin for each of some architectures, which runs on devices of the same major capability, and PTX,
//! which the driver compiles for newer ones. An image is found by the hash of its source, the headers that this
//! includes and the compiler's options, so an image of other sources is never used.
//!
//! It begins with [`FIRST_LINE`] and a line with the length and the checksum of the index. The index is text: the
//! version of CUDA whose compiler made the file, then a line for each image with its architecture, the hash, where it
//! lies behind the index, its length, and its checksum. Images are compressed (RFC 1950).

use super::compiler::Image;
use super::store::{checksum, hash};
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The first line of a file.
const FIRST_LINE: &str = "gt-cuda-kernels 1";
/// The longest line before the index.
const LINE_BYTES_MAX: usize = 100;
/// The largest index and the largest image that are read.
const INDEX_BYTES_MAX: usize = 16 << 20;
const IMAGE_BYTES_MAX: usize = 64 << 20;
/// The version of CUDA: major and minor number.
pub type CudaVersion = (u32, u32);

/// The architecture that an image is compiled for, as an option of NVRTC names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// A cubin for devices of this capability, and of newer ones with the same major number.
    Device(u32),
    /// PTX for devices of this capability and all newer ones.
    Newer(u32),
}

impl Architecture {
    /// The best for a device of this capability whose driver is for this version of CUDA, if any is right for it. The
    /// compiler that made the images is of version `made_by`.
    fn best(of: &[Architecture], capability: u32, driver: CudaVersion, made_by: CudaVersion) -> Option<Architecture> {
        let cubin = |known: &Architecture| match known {
            Architecture::Device(n) => (n / 10 == capability / 10 && *n <= capability).then_some(*n),
            Architecture::Newer(_) => None,
        };
        let ptx = |known: &Architecture| match known {
            Architecture::Newer(n) => (*n <= capability).then_some(*n),
            Architecture::Device(_) => None,
        };
        // A driver runs cubins of newer minor versions, but compiles no PTX of them.
        let cubins = of.iter().filter_map(cubin).filter(|_| driver.0 >= made_by.0).max().map(Architecture::Device);
        cubins.or_else(|| of.iter().filter_map(ptx).filter(|_| driver >= made_by).max().map(Architecture::Newer))
    }

    /// The best that a compiler of version `made_by` makes, which knows these capabilities, for a device of this one
    /// whose driver is for this version of CUDA.
    ///
    /// # Errors
    /// None is right for it, and what to install instead.
    pub fn to_compile_for(
        known: &[u32],
        capability: u32,
        driver: CudaVersion,
        made_by: CudaVersion,
    ) -> Result<Architecture, String> {
        let each: Vec<Architecture> =
            known.iter().flat_map(|n| [Architecture::Device(*n), Architecture::Newer(*n)]).collect();
        Architecture::best(&each, capability, driver, made_by).ok_or_else(|| {
            let (device, driver, made_by) =
                (version_text((capability / 10, capability % 10)), version_text(driver), version_text(made_by));
            if known.iter().all(|n| *n > capability) {
                format!("it is of CUDA {made_by}, which has no code for devices of capability {device}: install an older one")
            } else {
                format!(
                    "it is of CUDA {made_by}, whose code the driver for CUDA {driver} does not take for a device of \
                     capability {device}: install a newer driver, or one of CUDA {driver}"
                )
            }
        })
    }
}

/// A version as NVIDIA writes it: 13.0.
fn version_text((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

impl Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Architecture::Device(capability) => write!(f, "sm_{capability}"),
            Architecture::Newer(capability) => write!(f, "compute_{capability}"),
        }
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(text: &str) -> Result<Architecture, String> {
        let number = |digits: &str| digits.parse().map_err(|_| format!("{text} is no architecture"));
        match text.split_once('_') {
            Some(("sm", digits)) => number(digits).map(Architecture::Device),
            Some(("compute", digits)) => number(digits).map(Architecture::Newer),
            _ => Err(format!("{text} is no architecture")),
        }
    }
}

/// The place of an image in a file.
#[derive(Clone, Copy, Debug)]
struct Stored {
    offset: u64,
    bytes: usize,
    checksum: u64,
}

/// The images of a file for one device.
#[derive(Debug)]
pub struct Prebuilt {
    path: PathBuf,
    file: File,
    /// The options that images were compiled with, of which the hashes are.
    options: String,
    architecture: Architecture,
    images: HashMap<String, Stored>,
    /// Where the first image begins.
    start: u64,
    /// Whether it was logged that an image is missing or broken, after which the file is left alone.
    is_given_up: AtomicBool,
}

impl Prebuilt {
    /// Opens the file at `path` for a device of this capability (90 is 9.0), whose driver is for this version of CUDA.
    /// `options` are those that images have to be compiled with.
    ///
    /// # Errors
    /// Why nothing of the file can be used.
    pub fn open(path: &Path, capability: u32, driver: CudaVersion, options: &str) -> Result<Prebuilt, String> {
        let KernelFile { file, made_by, entries, start } = KernelFile::open(path)?;
        let known: Vec<Architecture> = entries.iter().map(|(architecture, ..)| *architecture).collect();
        let architecture = Architecture::best(&known, capability, driver, made_by).ok_or_else(|| {
            let (device, driver) = (version_text((capability / 10, capability % 10)), version_text(driver));
            format!("it has no code for a device of capability {device} with a driver for CUDA {driver}")
        })?;
        let chosen = entries.into_iter().filter(|(of, ..)| *of == architecture);
        let images = chosen.map(|(_, hash, stored)| (hash, stored)).collect();
        let (path, options) = (path.to_owned(), options.to_owned());
        Ok(Prebuilt { path, file, options, architecture, images, start, is_given_up: AtomicBool::new(false) })
    }

    /// The file of this installation, opened as [`Prebuilt::open`] does; none if there is none. A file that cannot be
    /// used is logged.
    pub fn installed(capability: u32, driver: CudaVersion, options: &str) -> Option<Prebuilt> {
        let path = match KernelPlace::of(&std::env::current_exe().ok()?) {
            KernelPlace::Off => return None,
            KernelPlace::Named(path) => path,
            KernelPlace::Beside(path) => Some(path).filter(|path| path.exists())?,
        };
        let opened = Prebuilt::open(&path, capability, driver, options);
        let prebuilt = opened.map_err(|why| log_unused(&path, &why)).ok()?;
        let (path, architecture) = (path.display(), prebuilt.architecture);
        tracing::info!(target: "gtd::cuda", %path, %architecture, "kernels were compiled beforehand");
        Some(prebuilt)
    }

    /// The architecture of the images.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The image of `source`, if the file has it. The first that it lacks is logged, since then it is of other sources.
    pub fn image(&self, source: &str) -> Option<Image> {
        if self.is_given_up.load(Relaxed) {
            return None;
        }
        let stored = self.images.get(&name(self.architecture, &self.options, source));
        let image = stored.ok_or_else(|| "it has no image of this source".to_owned()).and_then(|at| self.read(*at));
        image.map_err(|why| self.give_up(&why)).ok()
    }

    /// Leaves the file alone from here on, and logs why.
    pub fn give_up(&self, why: &str) {
        if !self.is_given_up.swap(true, Relaxed) {
            log_unused(&self.path, why);
        }
    }

    fn read(&self, stored: Stored) -> Result<Image, String> {
        let mut packed = vec![0; stored.bytes];
        self.file.read_exact_at(&mut packed, self.start + stored.offset).map_err(|error| error.to_string())?;
        if u64::from_le_bytes(checksum(&packed)) != stored.checksum {
            return Err("the checksum of an image does not hold".into());
        }
        let image = decompress_to_vec_zlib_with_limit(&packed, IMAGE_BYTES_MAX).map_err(|error| error.to_string())?;
        // The driver reads a cubin's length from its header, and PTX up to a zero byte.
        let is_whole = match self.architecture {
            Architecture::Device(_) => image.starts_with(b"\x7fELF"),
            Architecture::Newer(_) => image.ends_with(b"\0"),
        };
        if is_whole { Ok(image) } else { Err("an image is no code of a device".into()) }
    }
}

fn log_unused(path: &Path, why: &str) {
    let path = path.display();
    tracing::warn!(target: "gtd::cuda", %path, %why, "kernels are compiled here, since the file of compiled ones is not used");
}

/// The variable that names the file of compiled kernels.
pub const FILE_VARIABLE: &str = "GT_CUDA_KERNELS";

/// Where a program looks for the file of compiled kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelPlace {
    /// Nowhere: `GT_CUDA_KERNELS` is 0.
    Off,
    /// Where `GT_CUDA_KERNELS` says.
    Named(PathBuf),
    /// At `lib/gt/cuda-kernels` beside the program's folder.
    Beside(PathBuf),
}

impl KernelPlace {
    /// The place for `program`, in this environment.
    pub fn of(program: &Path) -> KernelPlace {
        match std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) if value == "0" => KernelPlace::Off,
            Some(value) => KernelPlace::Named(value.into()),
            None => {
                let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
                KernelPlace::Beside(prefix.join("lib/gt/cuda-kernels"))
            }
        }
    }
}

/// A file of compiled kernels, and its index.
#[derive(Debug)]
pub struct KernelFile {
    file: File,
    /// The version of CUDA whose compiler made the images.
    made_by: CudaVersion,
    entries: Vec<(Architecture, String, Stored)>,
    /// Where the first image begins.
    start: u64,
}

impl KernelFile {
    /// Opens the file at `path` and reads its index.
    ///
    /// # Errors
    /// It cannot be read, or is no such file, or not whole.
    pub fn open(path: &Path) -> Result<KernelFile, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let (index, start) = index(&file)?;
        let mut lines = index.lines();
        let made_by = lines.next().and_then(|line| {
            let (major, minor) = line.strip_prefix("cuda ")?.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        let made_by = made_by.ok_or("its index names no version of CUDA")?;
        let entries = lines.map(entry).collect::<Result<Vec<_>, String>>()?;
        let end = entries.iter().map(|(.., stored)| start.saturating_add(stored.offset + stored.bytes as u64)).max();
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        if end.is_some_and(|end| end > length) {
            return Err(format!("it has {length} bytes, fewer than its images"));
        }
        Ok(KernelFile { file, made_by, entries, start })
    }

    /// The version of CUDA whose compiler made the images.
    pub fn made_by(&self) -> CudaVersion {
        self.made_by
    }

    /// The architectures that have images: those of devices, then those of newer ones.
    pub fn architectures(&self) -> Vec<Architecture> {
        let all: BTreeSet<Architecture> = self.entries.iter().map(|(architecture, ..)| *architecture).collect();
        all.into_iter().collect()
    }

    /// The architecture that is right for a device of this capability and its driver, as [`Prebuilt::open`] chooses it.
    pub fn right_for(&self, capability: u32, driver: CudaVersion) -> Option<Architecture> {
        Architecture::best(&self.architectures(), capability, driver, self.made_by)
    }

    /// How many of these sources have an image for this architecture.
    pub fn count(&self, sources: &[String], architecture: Architecture, options: &str) -> usize {
        let of_it = self.entries.iter().filter(|(of, ..)| *of == architecture);
        let known: HashSet<&str> = of_it.map(|(_, hash, _)| hash.as_str()).collect();
        sources.iter().filter(|source| known.contains(&*name(architecture, options, source))).count()
    }
}

/// How much a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePacking {
    /// Not at all, for an archive that finds what images have in common.
    Plain,
    /// Each image by itself.
    Compressed,
}

/// Writes a file of the images of these sources. `options` are those that they were compiled with, by a compiler of
/// version `made_by`.
///
/// # Errors
/// Those of writing.
pub fn write(
    path: &Path,
    made_by: CudaVersion,
    options: &str,
    images: &[(Architecture, String, Image)],
    packing: ImagePacking,
) -> std::io::Result<()> {
    let effort = if packing == ImagePacking::Plain { 0 } else { 9 };
    let mut index = format!("cuda {}.{}\n", made_by.0, made_by.1);
    let mut all = Vec::new();
    for (architecture, source, image) in images {
        let packed = compress_to_vec_zlib(image, effort);
        let (hash, sum) = (name(*architecture, options, source), u64::from_le_bytes(checksum(&packed)));
        let _ = writeln!(index, "{architecture} {hash} {} {} {sum:016x}", all.len(), packed.len());
        all.extend(packed);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let partial = path.with_extension(std::process::id().to_string());
    let mut file = File::create(&partial)?;
    let sum = u64::from_le_bytes(checksum(index.as_bytes()));
    write!(file, "{FIRST_LINE}\n{} {sum:016x}\n{index}", index.len())?;
    file.write_all(&all)?;
    drop(file);
    std::fs::rename(partial, path)
}

/// The name of an image in the index: a hash of everything that it depends on but the compiler's version.
fn name(architecture: Architecture, options: &str, source: &str) -> String {
    let identity = format!("{architecture} {options}");
    format!("{:016x}{:016x}", hash(1, &identity, source), hash(2, &identity, source))
}

/// The index of a file, and where the first image begins.
fn index(file: &File) -> Result<(String, u64), String> {
    let mut head = [0; 2 * LINE_BYTES_MAX];
    let read = file.read_at(&mut head, 0).map_err(|error| error.to_string())?;
    let head = String::from_utf8_lossy(&head[..read]);
    let mut lines = head.split('\n');
    if lines.next() != Some(FIRST_LINE) {
        return Err(format!("it does not begin with {FIRST_LINE}"));
    }
    let line = lines.next().unwrap_or_default();
    let sizes =
        line.split_once(' ').and_then(|(bytes, sum)| Some((bytes.parse().ok()?, u64::from_str_radix(sum, 16).ok()?)));
    let (bytes, sum): (usize, u64) = sizes.ok_or("it does not say how long its index is")?;
    let begin = (FIRST_LINE.len() + line.len() + 2) as u64;
    let mut index = vec![0; bytes.min(INDEX_BYTES_MAX)];
    file.read_exact_at(&mut index, begin).map_err(|_| "its index is not whole")?;
    if u64::from_le_bytes(checksum(&index)) != sum {
        return Err("the checksum of its index does not hold".into());
    }
    let text = String::from_utf8(index).map_err(|error| error.to_string())?;
    Ok((text, begin + bytes as u64))
}

/// A line of the index.
fn entry(line: &str) -> Result<(Architecture, String, Stored), String> {
    let wrong = || format!("its index has the line: {line}");
    let [architecture, hash, offset, bytes, sum] = line.split(' ').collect::<Vec<_>>()[..] else { return Err(wrong()) };
    let (offset, bytes) = (offset.parse().map_err(|_| wrong())?, bytes.parse().map_err(|_| wrong())?);
    let checksum = u64::from_str_radix(sum, 16).map_err(|_| wrong())?;
    if bytes > IMAGE_BYTES_MAX || offset > u64::MAX / 4 {
        return Err(wrong());
    }
    Ok((architecture.parse()?, hash.to_owned(), Stored { offset, bytes, checksum }))
}

#[cfg(test)]
mod tests {
    use super::Architecture::{Device, Newer};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata};

    const CUDA: CudaVersion = (13, 0);
    const OPTIONS: &str = "--std=c++17";

    /// A subscriber that counts events.
    #[derive(Clone, Default)]
    struct LinesLogged(Arc<AtomicUsize>);

    impl tracing::Subscriber for LinesLogged {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// The result of `body`, and the number of lines that it logs.
    fn logged<T>(body: impl FnOnce() -> T) -> (T, usize) {
        let lines = LinesLogged::default();
        let result = tracing::subscriber::with_default(lines.clone(), body);
        (result, lines.0.load(Relaxed))
    }

    /// An image that looks like a cubin.
    fn cubin(text: &str) -> Image {
        [b"\x7fELF", text.as_bytes()].concat()
    }

    /// A file with images of the sources `a` and `b`, which is removed with the value.
    struct Written(PathBuf);

    impl Written {
        fn new(test: &str, packing: ImagePacking) -> Written {
            let path = std::env::temp_dir().join(format!("gt-prebuilt-{}-{test}", std::process::id())).join("kernels");
            let mut images = Vec::new();
            for source in ["a", "b"] {
                for capability in [80, 90, 100] {
                    images.push((Device(capability), source.to_owned(), cubin(&format!("{source} for {capability}"))));
                }
                images.push((Newer(100), source.to_owned(), format!("{source} for newer\0").into_bytes()));
            }
            write(&path, CUDA, OPTIONS, &images, packing).unwrap();
            Written(path)
        }

        fn open(&self, capability: u32) -> Result<Prebuilt, String> {
            Prebuilt::open(&self.0, capability, CUDA, OPTIONS)
        }
    }

    impl Drop for Written {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    #[test]
    fn a_device_has_the_newest_cubin_of_its_major_capability_and_a_newer_one_has_ptx() {
        let all = [Device(80), Device(90), Device(100), Newer(100)];
        for (capability, expected) in [
            (75, None),
            (80, Some(Device(80))),
            (86, Some(Device(80))),
            (89, Some(Device(80))),
            (90, Some(Device(90))),
            (100, Some(Device(100))),
            (103, Some(Device(100))),
            (110, Some(Newer(100))),
            (120, Some(Newer(100))),
        ] {
            assert_eq!(Architecture::best(&all, capability, CUDA, CUDA), expected, "{capability}");
        }
        assert_eq!(Architecture::best(&[Device(80), Device(86)], 89, CUDA, CUDA), Some(Device(86)));
        // Drivers run cubins of the same major version of CUDA, and compile no PTX of a newer one.
        for (driver, cubin, ptx) in [
            ((12, 9), None, None),
            ((13, 0), Some(Device(90)), None),
            ((13, 1), Some(Device(90)), Some(Newer(100))),
            ((14, 0), Some(Device(90)), Some(Newer(100))),
        ] {
            let found = [90, 120].map(|capability| Architecture::best(&all, capability, driver, (13, 1)));
            assert_eq!(found, [cubin, ptx], "{driver:?}");
        }
    }

    #[test]
    fn a_compiler_makes_code_for_the_newest_architecture_that_it_knows_up_to_the_device_s() {
        // NVRTC 12.4 and 13.0 list these.
        let old = [50, 60, 61, 70, 72, 75, 80, 86, 87, 89, 90];
        let new = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];
        for (known, made_by, capability, driver, expected) in [
            (&new[..], (13, 0), 75, (13, 0), Device(75)),
            (&new, (13, 0), 90, (13, 0), Device(90)),
            (&new, (13, 0), 101, (13, 0), Device(100)),
            (&new, (13, 2), 90, (13, 0), Device(90)),
            (&new, (13, 0), 130, (13, 1), Newer(121)),
            (&old, (12, 4), 89, (12, 2), Device(89)),
            (&old, (12, 4), 120, (13, 0), Newer(90)),
        ] {
            assert_eq!(Architecture::to_compile_for(known, capability, driver, made_by), Ok(expected), "{capability}");
        }
        let refused = |known, capability, driver, made_by| {
            Architecture::to_compile_for(known, capability, driver, made_by).expect_err("no code is right")
        };
        assert_eq!(
            refused(&new, 70, (13, 0), (13, 0)),
            "it is of CUDA 13.0, which has no code for devices of capability 7.0: install an older one"
        );
        // A compiler that is newer than the driver.
        assert_eq!(
            refused(&new, 90, (12, 8), (13, 0)),
            "it is of CUDA 13.0, whose code the driver for CUDA 12.8 does not take for a device of capability 9.0: \
             install a newer driver, or one of CUDA 12.8"
        );
        assert!(refused(&new, 130, (13, 0), (13, 2)).ends_with("install a newer driver, or one of CUDA 13.0"));
    }

    #[test]
    fn an_image_is_found_by_its_source() {
        for (packing, test) in [(ImagePacking::Plain, "plain"), (ImagePacking::Compressed, "compressed")] {
            let file = Written::new(test, packing);
            for (capability, architecture, expected) in [
                (86, Device(80), cubin("a for 80")),
                (90, Device(90), cubin("a for 90")),
                (120, Newer(100), b"a for newer\0".to_vec()),
            ] {
                let ((found, again), lines) = logged(|| {
                    let prebuilt = file.open(capability).unwrap();
                    assert_eq!(prebuilt.architecture(), architecture);
                    (prebuilt.image("a"), prebuilt.image("a"))
                });
                assert_eq!((found, again, lines), (Some(expected.clone()), Some(expected), 0));
            }
        }
    }

    #[test]
    fn an_image_of_other_sources_or_options_is_not_used_and_that_is_logged_once() {
        let file = Written::new("stale", ImagePacking::Compressed);
        let ((), lines) = logged(|| {
            let prebuilt = file.open(90).unwrap();
            assert_eq!((prebuilt.image("a changed"), prebuilt.image("another")), (None, None));
        });
        assert_eq!(lines, 1);
        let (found, lines) = logged(|| Prebuilt::open(&file.0, 90, CUDA, "--std=c++20").unwrap().image("a"));
        assert_eq!((found, lines), (None, 1));
    }

    #[test]
    fn a_file_says_what_it_has() {
        let path = Written::new("told", ImagePacking::Plain);
        let file = KernelFile::open(&path.0).unwrap();
        assert_eq!(file.made_by(), CUDA);
        assert_eq!(file.architectures(), [Device(80), Device(90), Device(100), Newer(100)]);
        assert_eq!(file.right_for(86, CUDA), Some(Device(80)));
        assert_eq!(file.right_for(75, CUDA), None);
        let sources = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([OPTIONS, "--std=c++20"].map(|options| file.count(&sources, Device(90), options)), [2, 0]);
        assert_eq!(file.count(&sources, Device(120), OPTIONS), 0);
    }

    #[test]
    fn a_program_looks_beside_its_folder() {
        let place = KernelPlace::of(Path::new("/usr/local/bin/gtd"));
        match std::env::var_os(FILE_VARIABLE) {
            None => assert_eq!(place, KernelPlace::Beside("/usr/local/lib/gt/cuda-kernels".into())),
            Some(_) => assert!(!matches!(place, KernelPlace::Beside(_))),
        }
    }

    #[test]
    fn a_file_that_is_not_whole_is_not_used() {
        let file = Written::new("part", ImagePacking::Compressed);
        let whole = std::fs::read(&file.0).unwrap();
        for bytes in [0, 5, FIRST_LINE.len() + 3, 200, whole.len() - 1] {
            std::fs::write(&file.0, &whole[..bytes]).unwrap();
            assert!(file.open(90).is_err(), "{bytes} bytes of {}", whole.len());
        }
        for changed in [0, FIRST_LINE.len() + 2, 200] {
            let mut wrong = whole.clone();
            wrong[changed] ^= 1;
            std::fs::write(&file.0, &wrong).unwrap();
            assert!(file.open(90).is_err(), "byte {changed} is another");
        }
        // The bytes of images are read where one is needed.
        let mut wrong = whole.clone();
        let images = wrong.len() - 8;
        wrong[images - 120..images].fill(0);
        std::fs::write(&file.0, &wrong).unwrap();
        let (found, lines) = logged(|| {
            let prebuilt = file.open(120).unwrap();
            [prebuilt.image("b"), prebuilt.image("b"), prebuilt.image("a")]
        });
        assert_eq!((found, lines), ([None, None, None], 1));
        assert!(Prebuilt::open(Path::new("/nowhere/kernels"), 90, CUDA, OPTIONS).is_err());
    }
}
