//! An allocator that ends the process with a message and exit code 1 when memory ends.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Cursor, Write},
};

/// The system's allocator. When it has no memory, the process ends as after a kill: what it has not finished is removed or
/// continued by the next call.
pub(crate) struct Reporting;

// SAFETY: every call is the system's, with the same arguments; a pointer that is returned is never null.
unsafe impl GlobalAlloc for Reporting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this function, which is the same.
        found(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        found(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`; `pointer` is the system's.
        found(unsafe { System.realloc(pointer, layout, size) }, size)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`; `pointer` is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn found(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() {
        exhausted(size);
    }
    pointer
}

/// Ends the process without allocating.
#[cold]
fn exhausted(size: usize) -> ! {
    let mut text = [0; 128];
    let mut cursor = Cursor::new(&mut text[..]);
    // The buffer is long enough.
    let _ = writeln!(cursor, "error: memory ended: {size} bytes more were not to be had");
    let length = usize::try_from(cursor.position()).unwrap_or(0);
    end(&text[..length])
}

#[cfg(unix)]
fn end(text: &[u8]) -> ! {
    // SAFETY: the bytes are valid for their length; neither call allocates or runs other code of the process.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(1)
    }
}

#[cfg(not(unix))]
fn end(text: &[u8]) -> ! {
    let _ = std::io::stderr().write_all(text);
    std::process::exit(1)
}
