//! A thread pool that shares the work of one product.
//!
//! A decoding step has about a hundred small products, so a hand-over must take about a microsecond. Threads
//! spin for a while before they sleep.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{OnceLock, TryLockError, atomic::Ordering},
};

use crate::sync::{Arc, AtomicBool, AtomicUsize, Mutex, UnsafeCell, thread};

/// The number of polls before a thread sleeps: about 0.1 ms. A model needs one to cover the loop.
const SPINS: usize = if cfg!(loom) { 1 } else { 2_000 };

/// The epoch of a pool that is dropped. It is odd, as that of an open job.
const STOPPED: usize = usize::MAX;

/// A job: called once for each part.
type Job = dyn Fn(usize) + Sync;

/// A pool of threads that includes the caller's.
pub struct ThreadPool {
    shared: Arc<Shared>,
    helpers: Vec<thread::JoinHandle<()>>,
    /// Held while a job runs: a second caller processes its parts alone.
    busy: Mutex<()>,
}

struct Shared {
    /// Counts the jobs; an odd number while one is open.
    epoch: AtomicUsize,
    /// The open job. Written by the caller between jobs, read by helpers that have entered.
    job: UnsafeCell<Option<*const Job>>,
    parts: AtomicUsize,
    next: AtomicUsize,
    /// Helpers that may be reading `job`.
    entered: AtomicUsize,
    panicked: AtomicBool,
    sleeping: Vec<AtomicBool>,
}

// SAFETY: `job` is written only while no job is open and no helper has entered (see `ThreadPool::run`), and the job that it
// points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// The pool of this process, with as many threads as rayon's global pool.
    #[must_use]
    pub fn global() -> &'static Self {
        static TEAM: OnceLock<ThreadPool> = OnceLock::new();
        TEAM.get_or_init(|| Self::new(rayon::current_num_threads()))
    }

    /// A pool with only the caller, for a caller that is one of several.
    #[must_use]
    pub fn alone() -> &'static Self {
        static TEAM: OnceLock<ThreadPool> = OnceLock::new();
        TEAM.get_or_init(|| Self::new(1))
    }

    /// A pool of `threads`. Its helpers end when it is dropped.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let count = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            parts: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            sleeping: (0..count).map(|_| AtomicBool::new(false)).collect(),
        });
        let helpers = (0..count)
            .map_while(|at| {
                let shared = Arc::clone(&shared);
                let name = format!("kernels-{at}");
                // If a thread cannot start, those before it process its parts.
                thread::Builder::new().name(name).spawn(move || shared.help(at)).ok()
            })
            .collect();
        Self { shared, helpers, busy: Mutex::new(()) }
    }

    /// The number of threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `job` for each of 0 to `parts - 1`, in any order and on any thread, and returns after all. If
    /// the pool is busy with another caller, or with a job that calls this, the caller works alone.
    ///
    /// # Panics
    /// If `job` panics.
    pub fn run(&self, parts: usize, job: &(dyn Fn(usize) + Sync)) {
        let free = match self.busy.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        if parts <= 1 || self.helpers.is_empty() || free.is_none() {
            (0..parts).for_each(job);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime is changed; `job` outlives the call, and no helper reads it after `entered` has
        // been seen to be 0 below, with the job closed.
        let pointer = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Job>(job) };
        // SAFETY: `busy` is held and the epoch is even, so no helper reads the cell: one that has entered since
        // then has seen the even epoch and leaves.
        shared.job.with_mut(|job| unsafe { *job = Some(pointer) });
        shared.parts.store(parts, Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (helper, sleeping) in self.helpers.iter().zip(&shared.sleeping) {
            if sleeping.load(Ordering::SeqCst) && sleeping.swap(false, Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.work(job)));
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        // A helper enters before it looks at the epoch, and both are in one total order: from here on, either it is
        // counted, or it sees that the job is closed.
        let mut spins = 0;
        while shared.entered.load(Ordering::SeqCst) != 0 {
            spins += 1;
            if spins > SPINS { thread::yield_now() } else { std::hint::spin_loop() }
        }
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        drop(free);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        assert!(!panicked, "a part of the job panicked");
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.epoch.store(STOPPED, Ordering::SeqCst);
        for helper in &self.helpers {
            helper.thread().unpark();
        }
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its jobs.
            let _ = helper.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool({})", self.threads())
    }
}

impl Shared {
    fn work(&self, job: &(dyn Fn(usize) + Sync)) {
        let parts = self.parts.load(Ordering::Relaxed);
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return;
            }
            job(part);
        }
    }

    /// The main loop of helper `at`, until the pool is dropped.
    fn help(&self, at: usize) {
        let mut seen = 0;
        loop {
            self.wait(at, seen);
            self.entered.fetch_add(1, Ordering::SeqCst);
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch == STOPPED {
                return;
            }
            if epoch % 2 == 1 {
                let outcome = self.job.with(|job| {
                    // SAFETY: the job is open and this helper is counted, so the cell is not written and the job
                    // lives until it leaves.
                    let job = unsafe { (*job).map(|job| &*job) };
                    job.map_or(Ok(()), |job| catch_unwind(AssertUnwindSafe(|| self.work(job))))
                });
                if outcome.is_err() {
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            self.entered.fetch_sub(1, Ordering::SeqCst);
            seen = epoch;
        }
    }

    /// Returns when a job other than `seen` may be open or the pool is dropped.
    fn wait(&self, at: usize, seen: usize) {
        loop {
            for _ in 0..SPINS {
                let epoch = self.epoch.load(Ordering::Relaxed);
                if epoch % 2 == 1 && epoch != seen {
                    return;
                }
                std::hint::spin_loop();
            }
            self.sleeping[at].store(true, Ordering::SeqCst);
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch % 2 == 1 && epoch != seen {
                self.sleeping[at].store(false, Ordering::SeqCst);
                return;
            }
            thread::park();
            self.sleeping[at].store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::ThreadPool;

    #[test]
    fn every_part_is_done_once() {
        let pool = ThreadPool::new(3);
        for parts in [0, 1, 2, 7, 100] {
            for _ in 0..200 {
                let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                pool.run(parts, &|part| {
                    done[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_pool_serves_several_callers_and_jobs_within_jobs() {
        let pool = ThreadPool::new(2);
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(5, &|part| {
                            pool.run(2, &|inner| {
                                sum.fetch_add(part + inner, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        // 400 jobs of parts 0 to 4, each twice, the second time with 1 more: 400 * (2 * 10 + 5).
        assert_eq!(sum.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_continues() {
        let pool = ThreadPool::new(2);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(8, &|part| assert!(part != 5, "part 5"));
        }));
        assert!(outcome.is_err());
        let count = AtomicUsize::new(0);
        pool.run(8, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 8);
    }
}
