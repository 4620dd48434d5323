//! Bytes of a mapped file, whose pages are let go when they have been read.

use std::{borrow::Cow, ops::Deref};

use memmap2::{Mmap, UncheckedAdvice};

/// Bytes of a mapped file, or owned ones.
#[derive(Debug)]
pub struct MappedBytes<'a> {
    bytes: Cow<'a, [u8]>,
    map: Option<&'a Mmap>,
}

impl<'a> MappedBytes<'a> {
    /// Bytes of `map`, or made from them.
    pub(crate) fn new(bytes: Cow<'a, [u8]>, map: &'a Mmap) -> Self {
        Self { map: matches!(bytes, Cow::Borrowed(_)).then_some(map), bytes }
    }

    /// Releases all pages of these bytes now.
    pub(crate) fn release_all(self) {
        drop(self);
    }

    /// Releases the pages of `part`, some of these bytes. Otherwise they stay in memory together with what is made from
    /// them. They are read again from the file if they are needed.
    ///
    /// # Panics
    /// If `part` is not of these bytes.
    pub fn release(&self, part: &[u8]) {
        let Some(map) = self.map else { return };
        let start = part.as_ptr().addr().wrapping_sub(map.as_ptr().addr());
        assert!(start <= map.len() && part.len() <= map.len() - start, "a part of the mapped file");
        // SAFETY: the map is read only and shared with its file, so pages that are let go hold nothing that the
        // file does not; whoever reads them again, in any thread, gets the same bytes from it.
        let released = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, part.len()) };
        if let Err(error) = released {
            tracing::debug!(%error, "pages were not released");
        }
    }
}

impl From<Vec<u8>> for MappedBytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: Cow::Owned(bytes), map: None }
    }
}

impl Deref for MappedBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Releases the pages.
impl Drop for MappedBytes<'_> {
    fn drop(&mut self) {
        self.release(&self.bytes);
    }
}
