//! Counts and times, in the text form of Prometheus.

use std::sync::Arc;

use axum::http::Method;
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The methods that have a label of their own.
const METHODS: [Method; 9] = [
    Method::GET,
    Method::POST,
    Method::HEAD,
    Method::OPTIONS,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::CONNECT,
    Method::TRACE,
];

type Labels<const N: usize> = [(&'static str, String); N];

/// Makes the histograms of a family.
#[derive(Clone, Copy)]
struct Buckets {
    first: f64,
    factor: f64,
    count: u16,
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(self.first, self.factor, self.count))
    }
}

/// The metrics of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels<3>, Counter>,
    seconds: Family<Labels<1>, Histogram, Buckets>,
    /// Requests that are being answered.
    pub(crate) open: Gauge,
    /// Open connections.
    pub(crate) connections: Gauge,
    waiting: Family<Labels<1>, Gauge>,
    batches: Family<Labels<1>, Histogram, Buckets>,
    tokens: Family<Labels<1>, Counter>,
    refused: Family<Labels<1>, Counter>,
    cancelled: Family<Labels<1>, Counter>,
}

/// The metrics of one worker.
#[derive(Clone)]
pub(crate) struct WorkerMetrics {
    /// Tokens that wait.
    pub(crate) waiting: Gauge,
    /// Items of a batch.
    pub(crate) batches: Histogram,
    /// Tokens that were read and written.
    pub(crate) tokens: Counter,
    /// Requests that were refused, because too much waits.
    pub(crate) refused: Counter,
    /// Items whose client has gone.
    pub(crate) cancelled: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("sporran");
        let requests = Family::default();
        let seconds = Family::new_with_constructor(Buckets { first: 0.001, factor: 2.0, count: 18 });
        let batches = Family::new_with_constructor(Buckets { first: 1.0, factor: 2.0, count: 11 });
        let (open, connections) = (Gauge::default(), Gauge::default());
        let (waiting, tokens, refused, cancelled) =
            (Family::default(), Family::default(), Family::default(), Family::default());
        registry.register("requests", "Answered requests", Family::clone(&requests));
        registry.register(
            "request_seconds",
            "Time from the head of a request to that of its response",
            Family::clone(&seconds),
        );
        registry.register("open_requests", "Requests that are being answered", Gauge::clone(&open));
        registry.register("connections", "Open connections", Gauge::clone(&connections));
        registry.register("waiting_tokens", "Tokens that wait for a worker", Family::clone(&waiting));
        registry.register("batch_items", "Items of a batch", Family::clone(&batches));
        registry.register("tokens", "Tokens that were read and written", Family::clone(&tokens));
        registry.register(
            "refused",
            "Requests that were refused because too much waits",
            Family::clone(&refused),
        );
        registry.register("cancelled", "Items whose client has gone", Family::clone(&cancelled));
        Arc::new(Self {
            registry,
            requests,
            seconds,
            open,
            connections,
            waiting,
            batches,
            tokens,
            refused,
            cancelled,
        })
    }

    /// Counts a request of a route. A route is a pattern such as `/v1/{index}/search`, and a method that HTTP does not name is
    /// `other`, so that clients cannot add series.
    pub(crate) fn answered(&self, method: &Method, route: &str, status: u16, seconds: f64) {
        let method = METHODS.iter().find(|known| *known == method).map_or("other", Method::as_str);
        let labels =
            [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&[("route", route.to_owned())]).observe(seconds);
    }

    /// The metrics of a worker.
    pub(crate) fn worker(&self, name: &str) -> WorkerMetrics {
        let labels = [("worker", name.to_owned())];
        WorkerMetrics {
            waiting: self.waiting.get_or_create(&labels).clone(),
            batches: self.batches.get_or_create(&labels).clone(),
            tokens: self.tokens.get_or_create(&labels).clone(),
            refused: self.refused.get_or_create(&labels).clone(),
            cancelled: self.cancelled.get_or_create(&labels).clone(),
        }
    }

    /// All metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // A string takes every write.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_workers_are_counted_by_label() {
        let metrics = Metrics::new();
        metrics.answered(&Method::GET, "/health", 200, 0.002);
        metrics.answered(&Method::GET, "/health", 200, 0.002);
        for made_up in ["BREW", "get"] {
            metrics.answered(&Method::from_bytes(made_up.as_bytes()).unwrap(), "other", 405, 0.002);
        }
        let worker = metrics.worker("embed");
        worker.tokens.inc_by(12);
        worker.waiting.set(3);
        let text = metrics.text();
        for line in [
            r#"sporran_requests_total{method="GET",route="/health",status="200"} 2"#,
            r#"sporran_requests_total{method="other",route="other",status="405"} 2"#,
            r#"sporran_request_seconds_count{route="/health"} 2"#,
            r#"sporran_tokens_total{worker="embed"} 12"#,
            r#"sporran_waiting_tokens{worker="embed"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
