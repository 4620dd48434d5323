//! The thread pool under `loom`, which runs the interleavings of a few threads, with every value that a load may
//! return. Larger models have a bound on the preemptions. `scripts/check-more` runs them.
#![cfg(loom)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook},
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use loom::{cell::UnsafeCell, model::Builder};
use sporran_kernels::ThreadPool;

/// Runs the interleavings of `model` with at most `preemptions` preemptions of threads, or all.
fn explore(name: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let start = Instant::now();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let bound = preemptions.map_or("all".to_owned(), |bound| format!("at most {bound}"));
    let (count, seconds) = (count.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    eprintln!("{name}: {count} interleavings, preemptions: {bound}, {seconds:.1} s");
}

/// One cell for each part of a job. `loom` reports an access that the pool does not order.
struct Cells(Vec<UnsafeCell<usize>>);

// SAFETY: `loom` reports accesses that are not ordered.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, part: usize) {
        // SAFETY: as above.
        self.0[part].with_mut(|cell| unsafe { *cell += 1 });
    }

    fn values(&self) -> Vec<usize> {
        // SAFETY: as above.
        self.0.iter().map(|cell| cell.with(|cell| unsafe { *cell })).collect()
    }
}

/// Runs `jobs` jobs of `parts` parts on a pool of `threads`.
fn jobs(threads: usize, parts: usize, jobs: usize) {
    let pool = ThreadPool::new(threads);
    for _ in 0..jobs {
        // A new job has new data: a helper that still used the old one would be reported.
        let cells = Cells::new(parts);
        pool.run(parts, &|part| cells.add(part));
        assert_eq!(cells.values(), vec![1; parts]);
    }
}

/// Panics without the message of the panic hook.
fn fail() -> ! {
    resume_unwind(Box::new("a part failed"))
}

/// A job with a part that panics, on any thread, and another job after it.
fn a_panic(threads: usize, parts: usize) {
    // The caller's own panic, for a part of a helper, has a message. Each interleaving would print it.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = take_hook();
        set_hook(Box::new(move |info| {
            if info.payload_as_str() != Some("a part of the job panicked") {
                default(info);
            }
        }));
    });
    let pool = ThreadPool::new(threads);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pool.run(parts, &|part| {
            if part == 1 {
                fail();
            }
        });
    }));
    assert!(outcome.is_err());
    let cells = Cells::new(parts);
    pool.run(parts, &|part| cells.add(part));
    assert_eq!(cells.values(), vec![1; parts]);
}

#[test]
fn one_worker_completes_a_job() {
    explore("a job, 1 worker", None, || jobs(2, 2, 1));
}

#[test]
fn one_worker_completes_two_jobs() {
    explore("two jobs, 1 worker", Some(4), || jobs(2, 2, 2));
}

#[test]
fn two_workers_complete_a_job() {
    explore("a job, 2 workers", Some(3), || jobs(3, 3, 1));
}

#[test]
fn two_workers_complete_two_jobs() {
    explore("two jobs, 2 workers", Some(2), || jobs(3, 2, 2));
}

#[test]
fn a_panic_in_a_worker_reaches_the_caller() {
    explore("a panic, 1 worker", Some(3), || a_panic(2, 2));
    explore("a panic, 2 workers", Some(2), || a_panic(3, 2));
}

#[test]
fn a_pool_without_a_job_ends_its_workers() {
    explore("shutdown, 1 worker", None, || drop(ThreadPool::new(2)));
    explore("shutdown, 2 workers", Some(3), || drop(ThreadPool::new(3)));
}
