//! A store of images on disk, so that a machine compiles a kernel once, and of the algorithms that it chose by timing.

use super::compiler::Image;
use crate::headers::included;
use gt_backend::ExecError;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks by hash, held while an image is compiled or bytes are written.
static MAKING: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];

/// A folder of images, named by the hash of source and compiler; without a folder, nothing is stored.
#[derive(Clone, Debug, Default)]
pub struct Store {
    folder: Option<PathBuf>,
}

impl Store {
    /// A store in `folder`, which is created when it is first needed.
    pub fn at(folder: impl Into<PathBuf>) -> Store {
        Store { folder: Some(folder.into()) }
    }

    /// The image of `source` by the compiler of this identity, from disk or from `make`.
    ///
    /// A folder that cannot be written costs time, not results, so such errors are only logged.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make(
        &self,
        identity: &str,
        source: &str,
        make: impl FnOnce() -> Result<Image, ExecError>,
    ) -> Result<Image, ExecError> {
        let Some(folder) = &self.folder else { return make() };
        if let Some(image) = self.get(identity, source) {
            return Ok(image);
        }
        // A second thread that wants the same image waits for the first.
        let _alone = alone(identity, source);
        if let Some(image) = self.get(identity, source) {
            return Ok(image);
        }
        let image = make()?;
        if let Err(error) = write(folder, &path(folder, identity, source), &image) {
            tracing::warn!(target: "gtd::cuda", folder = %folder.display(), %error, "a compiled kernel could not be kept");
        }
        Ok(image)
    }

    /// The bytes that were stored last for this identity and source; none if there are none, or the file is damaged.
    pub fn get(&self, identity: &str, source: &str) -> Option<Image> {
        read(&path(self.folder.as_ref()?, identity, source))
    }

    /// Stores bytes for this identity and source.
    ///
    /// # Errors
    /// Those of the file system; an older file stays as it was.
    pub fn put(&self, identity: &str, source: &str, bytes: &[u8]) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let _alone = alone(identity, source);
        write(folder, &path(folder, identity, source), bytes)
    }
}

/// Makes this thread the only one of the process that writes the file of this identity and source.
fn alone(identity: &str, source: &str) -> MutexGuard<'static, ()> {
    MAKING[hash(3, identity, source) as usize % MAKING.len()].lock().unwrap_or_else(PoisonError::into_inner)
}

fn path(folder: &Path, identity: &str, source: &str) -> PathBuf {
    folder.join(format!("{:016x}{:016x}", hash(1, identity, source), hash(2, identity, source)))
}

/// A hash of everything that an image depends on. Hashes of different kinds are independent.
pub(super) fn hash(kind: u8, identity: &str, source: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, identity, source).hash(&mut hasher);
    // An image depends on every header that its source includes.
    included(source).hash(&mut hasher);
    hasher.finish()
}

/// A checksum, which finds bytes that a disk has changed.
pub(super) fn checksum(image: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

/// The image in the file, if its checksum holds.
fn read(path: &Path) -> Option<Image> {
    let mut image = fs::read(path).ok()?;
    let sum: [u8; 8] = image.split_off(image.len().checked_sub(8)?).try_into().ok()?;
    (sum == checksum(&image)).then_some(image)
}

fn write(folder: &Path, path: &Path, image: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    // Only the owner may write: images run on the device with the data of every user.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = path.with_extension(std::process::id().to_string());
    let mut file = fs::File::create(&partial)?;
    file.write_all(image)?;
    file.write_all(&checksum(image))?;
    drop(file);
    fs::rename(partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_made_once_and_again_if_its_file_is_broken() {
        let folder = std::env::temp_dir().join(format!("gt-store-{}", std::process::id()));
        let store = Store::at(&folder);
        let made = std::cell::Cell::new(0);
        let get = |identity: &str, source: &str| {
            let make = || {
                made.set(made.get() + 1);
                Ok(source.as_bytes().to_vec())
            };
            store.get_or_make(identity, source, make).unwrap()
        };
        assert_eq!((get("sm_90", "a"), get("sm_90", "a"), made.get()), (b"a".to_vec(), b"a".to_vec(), 1));
        assert_eq!((get("sm_80", "a"), get("sm_90", "b"), made.get()), (b"a".to_vec(), b"b".to_vec(), 3));
        for entry in fs::read_dir(&folder).unwrap() {
            fs::write(entry.unwrap().path(), b"half").unwrap();
        }
        assert_eq!((get("sm_90", "a"), made.get()), (b"a".to_vec(), 4));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn two_writers_at_once_leave_one_whole_file() {
        let folder = std::env::temp_dir().join(format!("gt-store-two-{}", std::process::id()));
        let store = Store::at(&folder);
        let written = [[1; 64], [2; 64]];
        std::thread::scope(|scope| {
            for bytes in &written {
                scope.spawn(|| (0..50).for_each(|_| Store::at(&folder).put("a device", "a", bytes).unwrap()));
            }
            for _ in 0..200 {
                assert!(store.get("a device", "a").is_none_or(|read| written.iter().any(|bytes| bytes[..] == read)));
            }
        });
        assert!(store.get("a device", "a").is_some() && store.get("another device", "a").is_none());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
