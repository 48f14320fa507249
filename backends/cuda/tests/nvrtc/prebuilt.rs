//! The file of kernels that are compiled beforehand: written for `make cuda-kernels`.

use crate::{asked_for, nvrtc};
use gt_cuda::catalogue::catalogue;
use gt_cuda::compile::nvrtc::base_options;
use gt_cuda::compile::prebuilt::{Architecture, ImagePacking, Prebuilt, write};
use gt_cuda::compile::{Compiler, Store};
use gt_cuda::template::{KernelKey, images, source, together};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The capabilities that cubins are made for, of those that NVRTC knows; newer devices have PTX.
const CAPABILITIES: [u32; 3] = [80, 90, 100];
/// Set by `make cuda-kernels` to the path of the file.
const WRITE_VARIABLE: &str = "GT_WRITE_KERNELS";

#[test]
fn the_file_is_written_where_that_is_asked_for() {
    let Some(path) = std::env::var_os(WRITE_VARIABLE).map(PathBuf::from) else {
        return println!("skipped: `make cuda-kernels` writes the file");
    };
    let compiler = nvrtc(CAPABILITIES[0]).expect("NVRTC, in GT_CUDA_LIBRARIES");
    let known = compiler.supported().expect("NVRTC lists its architectures");
    let mut architectures: Vec<Architecture> =
        CAPABILITIES.into_iter().filter(|capability| known.contains(capability)).map(Architecture::Device).collect();
    architectures
        .extend(CAPABILITIES.into_iter().rev().find(|capability| known.contains(capability)).map(Architecture::Newer));
    let groups = images(&asked_for(catalogue()));
    let jobs: Vec<_> =
        architectures.iter().flat_map(|architecture| groups.iter().map(|group| (*architecture, group))).collect();
    // Only what has changed since the last file is compiled.
    let kept = Store::at(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-kernels"));
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some((architecture, group)) = jobs.get(next.fetch_add(1, Relaxed)) {
                    let compiler = nvrtc(CAPABILITIES[0]).expect("as before").for_architecture(*architecture);
                    let (name, source) = (group[0].name(), source(group));
                    let compiled = || compiler.compile(&name, &source);
                    let image = kept.get_or_make(&compiler.identity(), &source, compiled);
                    let image = image.unwrap_or_else(|error| panic!("{error}"));
                    made.lock().unwrap_or_else(PoisonError::into_inner).push((*architecture, source, image));
                }
            });
        }
    });
    let mut made = made.into_inner().expect("no thread has failed");
    // The same sources give the same file, in which images that have most in common lie side by side.
    made.sort_by_key(|(architecture, source, _)| (source.clone(), architecture.to_string()));
    for architecture in &architectures {
        let bytes: usize = made.iter().filter(|(of, ..)| of == architecture).map(|(.., image)| image.len()).sum();
        println!("{architecture}: {} images of {} bytes", groups.len(), bytes);
    }
    for (path, packing) in
        [(path.clone(), ImagePacking::Compressed), (path.with_extension("plain"), ImagePacking::Plain)]
    {
        write(&path, compiler.version(), &base_options(), &made, packing).expect("a folder that can be written");
        let file = Prebuilt::open(&path, CAPABILITIES[0], compiler.version(), &base_options()).expect("the file");
        for (_, source, image) in made.iter().filter(|(of, ..)| *of == file.architecture()) {
            assert_eq!(file.image(source).as_ref(), Some(image), "{}", path.display());
        }
        println!("{}: {} bytes", path.display(), std::fs::metadata(&path).expect("the file").len());
    }
}

#[test]
fn every_kernel_is_in_one_image() {
    let keys = catalogue();
    let of = |keys: &[KernelKey]| keys.iter().map(KernelKey::name).collect::<Vec<_>>();
    let images = images(&keys);
    // A kernel is looked for in the image that it was compiled in.
    for image in &images {
        assert_eq!(of(&together(&image[image.len() - 1])), of(image));
    }
    let (mut found, mut names) = (of(&images.concat()), of(&keys));
    found.sort();
    names.sort();
    assert_eq!(found, names);
    let page = include_str!("../../../../docs/internals/cuda.md");
    let said = format!("{} images for each architecture", images.len());
    assert!(page.contains(&said), "docs/internals/cuda.md counts the images, of which there are {}", images.len());
}
