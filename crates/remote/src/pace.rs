//! Limits: requests at the same time, requests and tokens a minute, and pauses that an endpoint asks for.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::RequestOptions;

/// How often a waiting thread looks whether it is to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// The pace of all requests of a client.
pub(crate) struct Pace {
    state: Mutex<State>,
    freed: Condvar,
    concurrency: usize,
    /// The time between two requests.
    interval: Duration,
    /// The time for a token.
    per_token: Duration,
}

struct State {
    /// Requests that are under way.
    running: usize,
    /// When the next one may begin.
    next: Instant,
}

/// A request that is under way. Another may begin when it is dropped.
pub(crate) struct Permit<'a>(&'a Pace);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.freed.notify_one();
    }
}

impl Pace {
    pub(crate) fn new(options: &RequestOptions) -> Self {
        let each = |a_minute: Option<f64>| match a_minute {
            Some(count) if count > 0.0 => seconds(60.0 / count),
            _ => Duration::ZERO,
        };
        Self {
            state: Mutex::new(State { running: 0, next: Instant::now() }),
            freed: Condvar::new(),
            concurrency: options.concurrency.max(1),
            interval: each(options.requests_per_minute),
            per_token: each(options.tokens_per_minute),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request may begin. None if `stop` is set before.
    pub(crate) fn begin(&self, stop: &AtomicBool) -> Option<Permit<'_>> {
        let mut state = self.lock();
        loop {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let now = Instant::now();
            let wait = state.next.saturating_duration_since(now);
            if state.running < self.concurrency && wait.is_zero() {
                state.running += 1;
                state.next = state.next.max(now) + self.interval;
                return Some(Permit(self));
            }
            let wait = if wait.is_zero() { GLANCE } else { wait.min(GLANCE) };
            state = self.freed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets no request begin for some time, as an endpoint asks.
    pub(crate) fn pause(&self, wait: Duration) {
        let mut state = self.lock();
        state.next = state.next.max(Instant::now() + wait);
    }

    /// Delays the next request by the time that the tokens of a response take.
    pub(crate) fn spent(&self, tokens: u64) {
        if !self.per_token.is_zero() {
            let mut state = self.lock();
            state.next = state.next.max(Instant::now()) + self.per_token.mul_f64(tokens as f64);
        }
    }
}

/// Waits, unless `stop` is set before. Returns whether the time is over.
pub(crate) fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

/// A number of seconds of a config, at most a day.
pub(crate) fn seconds(count: f64) -> Duration {
    Duration::try_from_secs_f64(count.clamp(0.0, 86_400.0)).unwrap_or_default()
}

/// The wait before repetition `attempt`, counted from 0: it doubles, and half of it is random. The random part follows from
/// the seed and the request, so it does not depend on threads.
pub(crate) fn back_off(
    options: &RequestOptions,
    seed: u64,
    request: &blake3::Hash,
    attempt: usize,
) -> Duration {
    let doubled = options.first_wait * 2f64.powi(attempt.min(30) as i32);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(request.as_bytes()).update(&attempt.to_le_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    let share = u64::from_le_bytes(bytes) as f64 / u64::MAX as f64;
    seconds(doubled.min(options.longest_wait) * (0.5 + 0.5 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RequestOptions {
        RequestOptions { concurrency: 2, first_wait: 1.0, longest_wait: 5.0, ..RequestOptions::default() }
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_follows_from_the_seed() {
        let hash = blake3::hash(b"a");
        for (attempt, whole) in [1.0, 2.0, 4.0, 5.0, 5.0].into_iter().enumerate() {
            let wait = back_off(&options(), 1, &hash, attempt);
            assert!(wait >= seconds(whole / 2.0) && wait <= seconds(whole), "{wait:?}");
            assert_eq!(wait, back_off(&options(), 1, &hash, attempt));
        }
        assert_ne!(back_off(&options(), 1, &hash, 0), back_off(&options(), 2, &hash, 0));
        assert_ne!(back_off(&options(), 1, &hash, 0), back_off(&options(), 1, &blake3::hash(b"b"), 0));
    }

    #[test]
    fn only_so_many_requests_run_at_once_and_a_stop_ends_the_wait() {
        let pace = Pace::new(&options());
        let stop = AtomicBool::new(false);
        let (first, second) = (pace.begin(&stop).unwrap(), pace.begin(&stop).unwrap());
        assert_eq!(pace.lock().running, 2);
        drop(first);
        let third = pace.begin(&stop).unwrap();
        drop((second, third));
        assert_eq!(pace.lock().running, 0);
        pace.pause(Duration::from_secs(3600));
        stop.store(true, Ordering::Relaxed);
        assert!(pace.begin(&stop).is_none());
        assert!(!sleep(Duration::from_secs(3600), &stop));
    }

    #[test]
    fn limits_a_minute_move_the_next_request() {
        let limited =
            RequestOptions { requests_per_minute: Some(2.0), tokens_per_minute: Some(600.0), ..options() };
        let pace = Pace::new(&limited);
        let start = Instant::now();
        drop(pace.begin(&AtomicBool::new(false)));
        // Half a minute for the request, and 100 of 600 tokens.
        pace.spent(100);
        let next = pace.lock().next - start;
        assert!(next >= Duration::from_secs(40) && next < Duration::from_secs(45), "{next:?}");
    }
}
