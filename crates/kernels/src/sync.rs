//! The atomics, cells and threads of the thread pool: those of `std`, and with `cfg(loom)` those of `loom`, whose
//! models run the interleavings of a few threads (`tests/loom.rs`).

#[cfg(not(loom))]
pub(crate) use self::native::{Arc, AtomicBool, AtomicUsize, Mutex, UnsafeCell, thread};

#[cfg(loom)]
pub(crate) use self::model::{Arc, AtomicBool, AtomicUsize, Mutex, UnsafeCell, thread};

#[cfg(not(loom))]
mod native {
    pub(crate) use std::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicBool, AtomicUsize},
        },
        thread,
    };

    /// A cell with the interface of `loom`'s.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
mod model {
    use std::sync::atomic::Ordering;

    use loom::sync::atomic::{self, fence};
    pub(crate) use loom::{
        cell::UnsafeCell,
        sync::{Arc, Mutex},
        thread,
    };

    /// `loom` models a sequentially consistent access as acquire or release only, but models fences exactly. So such
    /// an access becomes one with a fence, as compilers implement it for processors with weak memory.
    fn fenced_read<T>(order: Ordering, read: impl FnOnce() -> T) -> T {
        if order == Ordering::SeqCst {
            fence(order);
        }
        read()
    }

    fn fenced_write<T>(order: Ordering, write: impl FnOnce() -> T) -> T {
        let before = write();
        if order == Ordering::SeqCst {
            fence(order);
        }
        before
    }

    pub(crate) struct AtomicUsize(atomic::AtomicUsize);

    impl AtomicUsize {
        pub(crate) fn new(value: usize) -> Self {
            Self(atomic::AtomicUsize::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> usize {
            fenced_read(order, || self.0.load(order))
        }

        pub(crate) fn store(&self, value: usize, order: Ordering) {
            fenced_write(order, || self.0.store(value, order));
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            fenced_write(order, || self.0.fetch_add(value, order))
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            fenced_write(order, || self.0.fetch_sub(value, order))
        }
    }

    pub(crate) struct AtomicBool(atomic::AtomicBool);

    impl AtomicBool {
        pub(crate) fn new(value: bool) -> Self {
            Self(atomic::AtomicBool::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> bool {
            fenced_read(order, || self.0.load(order))
        }

        pub(crate) fn store(&self, value: bool, order: Ordering) {
            fenced_write(order, || self.0.store(value, order));
        }

        pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
            fenced_write(order, || self.0.swap(value, order))
        }
    }
}
