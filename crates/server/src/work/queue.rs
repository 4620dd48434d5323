//! The jobs that wait for a worker.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{Cause, Failure, metrics::WorkerMetrics};

/// The bounds of a queue and its batches. A token is the unit of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The tokens that may wait.
    pub(crate) waiting: usize,
    /// The tokens of a batch. A longer item is a batch.
    pub(crate) batch: usize,
    /// The time for which a batch waits for more.
    pub(crate) window: Duration,
}

/// The size of a text for a queue, before any tokenizer has read it: about four bytes a token.
pub(crate) fn size(text: &str) -> usize {
    1 + text.len() / 4
}

/// Jobs that wait. Requests take turns: a batch has one job of each, then the next of each, so that a long request does not
/// hold up a short one.
pub(crate) struct Queue<J> {
    inner: Mutex<Inner<J>>,
    changed: Condvar,
    bounds: Bounds,
    metrics: WorkerMetrics,
}

struct Inner<J> {
    requests: VecDeque<VecDeque<(J, usize)>>,
    waiting: usize,
    is_closed: bool,
    /// Tokens a second, from the batches so far.
    rate: f64,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds, metrics: WorkerMetrics) -> Self {
        let inner = Inner { requests: VecDeque::new(), waiting: 0, is_closed: false, rate: 0.0 };
        Self { inner: Mutex::new(inner), changed: Condvar::new(), bounds, metrics }
    }

    pub(crate) fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }

    fn lock(&self) -> MutexGuard<'_, Inner<J>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the jobs of a request, each with its tokens.
    ///
    /// # Errors
    /// [`Cause::TooLarge`] for a request that would never fit, [`Cause::Overloaded`] for one that does not fit now, and
    /// [`Cause::Stopping`] for a closed queue.
    pub(crate) fn push(&self, jobs: VecDeque<(J, usize)>) -> Result<(), Failure> {
        let tokens: usize = jobs.iter().map(|(_, tokens)| tokens).sum();
        let most = self.bounds.waiting;
        if tokens > most {
            let message = format!("expected at most {most} tokens in a request, found {tokens}");
            return Err(Failure::new(Cause::TooLarge, message));
        }
        let mut inner = self.lock();
        if inner.is_closed {
            let failure = Failure::new(Cause::Changing, "the model is being replaced; try again");
            return Err(Failure { retry_after: Some(1), ..failure });
        }
        if inner.waiting + tokens > most {
            self.metrics.refused.inc();
            let waiting = inner.waiting;
            let message = format!(
                "tokens that wait for the model: {waiting}; the limit, `--max-waiting-tokens`, is {most}"
            );
            let seconds = if inner.rate > 0.0 { (inner.waiting as f64 / inner.rate).ceil() } else { 1.0 };
            let retry_after = Some(seconds.clamp(1.0, 60.0) as u64);
            return Err(Failure { retry_after, ..Failure::new(Cause::Overloaded, message) });
        }
        if !jobs.is_empty() {
            inner.waiting += tokens;
            self.metrics.waiting.set(inner.waiting as i64);
            inner.requests.push_back(jobs);
        }
        drop(inner);
        self.changed.notify_one();
        Ok(())
    }

    /// The next batch with its tokens. Waits for a first job, and then for more until the batch is full or the window is over.
    /// `None` if the queue is closed and empty.
    pub(crate) fn batch(&self) -> Option<(Vec<J>, usize)> {
        let mut inner = self.lock();
        while inner.requests.is_empty() {
            if inner.is_closed {
                return None;
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + self.bounds.window;
        while inner.waiting < self.bounds.batch && !inner.is_closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(self.take(&mut inner, usize::MAX))
    }

    /// Up to `most` jobs, without waiting.
    pub(crate) fn ready(&self, most: usize) -> Vec<J> {
        self.take(&mut self.lock(), most).0
    }

    fn take(&self, inner: &mut Inner<J>, most: usize) -> (Vec<J>, usize) {
        let (mut jobs, mut taken) = (Vec::new(), 0);
        while jobs.len() < most
            && let Some(mut request) = inner.requests.pop_front()
        {
            let Some((job, tokens)) = request.pop_front() else { continue };
            if !jobs.is_empty() && taken + tokens > self.bounds.batch {
                request.push_front((job, tokens));
                inner.requests.push_front(request);
                break;
            }
            taken += tokens;
            jobs.push(job);
            if !request.is_empty() {
                inner.requests.push_back(request);
            }
        }
        inner.waiting -= taken;
        self.metrics.waiting.set(inner.waiting as i64);
        (jobs, taken)
    }

    /// Notes the time of a batch, from which the time of waiting is estimated.
    pub(crate) fn worked(&self, tokens: usize, time: Duration) {
        let rate = tokens as f64 / time.as_secs_f64().max(1e-6);
        let mut inner = self.lock();
        inner.rate = if inner.rate > 0.0 { 0.8 * inner.rate + 0.2 * rate } else { rate };
    }

    /// Whether the queue is closed and empty.
    pub(crate) fn is_over(&self) -> bool {
        let inner = self.lock();
        inner.is_closed && inner.requests.is_empty()
    }

    /// Takes no further jobs. Those that wait are still done.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn queue(waiting: usize, batch: usize) -> Queue<char> {
        Queue::new(Bounds { waiting, batch, window: Duration::ZERO }, Metrics::new().worker("test"))
    }

    fn jobs(text: &str, tokens: usize) -> VecDeque<(char, usize)> {
        text.chars().map(|job| (job, tokens)).collect()
    }

    #[test]
    fn requests_take_turns_within_the_tokens_of_a_batch() {
        let queue = queue(100, 6);
        queue.push(jobs("abcd", 2)).unwrap();
        queue.push(jobs("x", 2)).unwrap();
        assert_eq!(queue.batch().unwrap(), (vec!['a', 'x', 'b'], 6));
        assert_eq!(queue.batch().unwrap(), (vec!['c', 'd'], 4));
        queue.close();
        assert!(queue.batch().is_none() && queue.is_over());
        assert_eq!(queue.push(jobs("a", 1)).unwrap_err().cause, Cause::Changing);
    }

    #[test]
    fn an_item_that_is_longer_than_a_batch_is_alone() {
        let queue = queue(100, 6);
        queue.push(jobs("a", 9)).unwrap();
        queue.push(jobs("b", 1)).unwrap();
        assert_eq!(queue.batch().unwrap(), (vec!['a'], 9));
        assert_eq!(queue.ready(3), ['b']);
        assert!(queue.ready(3).is_empty());
    }

    #[test]
    fn too_much_is_refused_now_or_for_ever() {
        let queue = queue(10, 6);
        queue.push(jobs("ab", 4)).unwrap();
        let refused = queue.push(jobs("c", 4)).unwrap_err();
        assert_eq!((refused.cause, refused.retry_after), (Cause::Overloaded, Some(1)));
        // Two tokens a second leave four seconds of work.
        queue.worked(2, Duration::from_secs(1));
        assert_eq!(queue.push(jobs("c", 4)).unwrap_err().retry_after, Some(4));
        assert_eq!(queue.push(jobs("abc", 4)).unwrap_err().cause, Cause::TooLarge);
        queue.batch().unwrap();
        queue.push(jobs("c", 4)).unwrap();
    }
}
