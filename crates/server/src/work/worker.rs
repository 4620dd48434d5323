//! A thread that computes batches.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

use super::queue::{Bounds, Queue};
use crate::{Failure, metrics::WorkerMetrics};

/// An item with the place for its result. The place is closed when the client has gone.
struct Job<I, O> {
    item: I,
    reply: oneshot::Sender<Result<O, Failure>>,
}

/// A thread that computes results of items in batches. It ends when the worker is dropped, after the items that wait.
pub(crate) struct Worker<I, O> {
    queue: Arc<Queue<Job<I, O>>>,
}

impl<I: Send + 'static, O: Send + 'static> Worker<I, O> {
    /// Starts a thread. `work` returns as many results as it gets items. If it fails for several items, it gets each alone, so
    /// that one item does not fail the others.
    pub(crate) fn start(
        name: &str,
        bounds: Bounds,
        metrics: WorkerMetrics,
        mut work: impl FnMut(&[I]) -> Result<Vec<O>, Failure> + Send + 'static,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(bounds, metrics));
        let jobs = Arc::clone(&queue);
        thread::Builder::new().name(format!("work {name}")).spawn(move || {
            while let Some((batch, tokens)) = jobs.batch() {
                let begin = Instant::now();
                let (items, replies) = waited_for(batch, &jobs);
                if items.is_empty() {
                    continue;
                }
                jobs.metrics().batches.observe(items.len() as f64);
                match attempt(&mut work, &items) {
                    Ok(results) => replies.into_iter().zip(results).for_each(|(reply, result)| {
                        // The client may have gone.
                        let _ = reply.send(Ok(result));
                    }),
                    Err(failure) if items.len() == 1 => {
                        for reply in replies {
                            let _ = reply.send(Err(failure.clone()));
                        }
                    }
                    Err(_) => {
                        for (reply, item) in replies.into_iter().zip(&items) {
                            let alone = attempt(&mut work, std::slice::from_ref(item));
                            let result = alone.and_then(|mut found| {
                                found.pop().ok_or_else(|| Failure::internal("a worker returned no result"))
                            });
                            let _ = reply.send(result);
                        }
                    }
                }
                jobs.metrics().tokens.inc_by(tokens as u64);
                jobs.worked(tokens, begin.elapsed());
            }
        })?;
        Ok(Self { queue })
    }

    /// The results of the items of a request, each item with its tokens. Items that still wait are not computed when the future
    /// is dropped.
    ///
    /// # Errors
    /// Those of the queue and of `work`.
    pub(crate) async fn all(&self, items: Vec<(I, usize)>) -> Result<Vec<O>, Failure> {
        let (mut jobs, mut results) = (VecDeque::with_capacity(items.len()), Vec::with_capacity(items.len()));
        for (item, tokens) in items {
            let (reply, result) = oneshot::channel();
            jobs.push_back((Job { item, reply }, tokens.max(1)));
            results.push(result);
        }
        self.queue.push(jobs)?;
        let mut found = Vec::with_capacity(results.len());
        for result in results {
            found.push(result.await.map_err(|_| Failure::internal("a worker has ended"))??);
        }
        Ok(found)
    }

    /// The result of one item.
    ///
    /// # Errors
    /// As for [`all`](Self::all).
    pub(crate) async fn one(&self, item: I, tokens: usize) -> Result<O, Failure> {
        let mut found = self.all(vec![(item, tokens)]).await?;
        found.pop().ok_or_else(|| Failure::internal("a worker returned no result"))
    }
}

impl<I, O> Drop for Worker<I, O> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The items whose clients still wait, and the places for their results.
#[allow(clippy::type_complexity)]
fn waited_for<I, O>(
    batch: Vec<Job<I, O>>,
    queue: &Queue<Job<I, O>>,
) -> (Vec<I>, Vec<oneshot::Sender<Result<O, Failure>>>) {
    let all = batch.len();
    let kept: (Vec<I>, Vec<_>) =
        batch.into_iter().filter(|job| !job.reply.is_closed()).map(|job| (job.item, job.reply)).unzip();
    queue.metrics().cancelled.inc_by((all - kept.0.len()) as u64);
    kept
}

/// Calls `work`. A panic is a failure.
fn attempt<I, O>(
    work: &mut impl FnMut(&[I]) -> Result<Vec<O>, Failure>,
    items: &[I],
) -> Result<Vec<O>, Failure> {
    let found = catch_unwind(AssertUnwindSafe(|| work(items)))
        .unwrap_or_else(|_| Err(Failure::internal("a worker panicked")))?;
    if found.len() == items.len() {
        return Ok(found);
    }
    Err(Failure::internal(format!("a worker returned {} results for {} items", found.len(), items.len())))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::{Cause, metrics::Metrics};

    fn bounds() -> Bounds {
        Bounds { waiting: 100, batch: 100, window: Duration::ZERO }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn one_item_that_fails_does_not_fail_the_others() {
        let work = |items: &[i32]| match items.iter().find(|item| **item < 0) {
            Some(item) => Err(Failure::invalid("item", item.to_string())),
            None => Ok(items.iter().map(|item| item * 2).collect()),
        };
        let worker = Worker::start("test", bounds(), Metrics::new().worker("test"), work).unwrap();
        run(async {
            assert_eq!(worker.all(vec![(1, 1), (2, 1), (3, 1)]).await.unwrap(), [2, 4, 6]);
            let (good, bad) = tokio::join!(worker.one(4, 1), worker.one(-1, 1));
            assert_eq!((good.unwrap(), bad.unwrap_err().message.as_str()), (8, "-1"));
        });
    }

    #[test]
    fn a_panic_is_a_failure_of_its_request_alone() {
        let work = |items: &[i32]| {
            assert!(items != [0], "zero");
            Ok(items.to_vec())
        };
        let worker = Worker::start("test", bounds(), Metrics::new().worker("test"), work).unwrap();
        run(async {
            assert_eq!(worker.one(0, 1).await.unwrap_err().cause, Cause::Internal);
            assert_eq!(worker.one(7, 1).await.unwrap(), 7);
        });
    }

    #[test]
    fn what_nobody_waits_for_is_not_computed() {
        let (begun, begins) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let work = move |items: &[i32]| {
            begun.send(items.to_vec()).unwrap();
            wait.recv().unwrap();
            Ok(items.to_vec())
        };
        let metrics = Metrics::new();
        let worker = Worker::start("test", bounds(), metrics.worker("test"), work).unwrap();
        let is_begun = async |future: std::pin::Pin<&mut dyn Future<Output = Result<i32, Failure>>>| {
            let mut future = Some(future);
            std::future::poll_fn(|context| {
                let found = future.take().map(|future| future.poll(context).is_pending());
                std::task::Poll::Ready(found == Some(true))
            })
            .await
        };
        run(async {
            let mut first = std::pin::pin!(worker.one(1, 1));
            assert!(is_begun(first.as_mut()).await);
            // The first item occupies the worker, and the second is dropped while it waits.
            assert_eq!(begins.recv().unwrap(), [1]);
            {
                let mut second = std::pin::pin!(worker.one(2, 1));
                assert!(is_begun(second.as_mut()).await);
            }
            go.send(()).unwrap();
            go.send(()).unwrap();
            assert_eq!(first.await.unwrap(), 1);
            assert_eq!(worker.one(3, 1).await.unwrap(), 3);
        });
        assert_eq!(begins.try_iter().collect::<Vec<_>>(), [[3]]);
        assert_eq!(metrics.worker("test").cancelled.get(), 1);
    }
}
