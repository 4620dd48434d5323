//! What this process has asked of endpoints, and what it cost.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;
use serde_json::Value;

/// The requests of this process to a model at an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// The address.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// Requests that were sent, repetitions included.
    pub requests: u64,
    /// Repetitions.
    pub retries: u64,
    /// Responses that came from the cache, at no cost.
    pub cached: u64,
    /// Input tokens of the sent requests, as the endpoint counts them.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// The cost of these tokens at the prices of the config; none without prices.
    pub cost: Option<f64>,
}

/// Requests may come from several stages and threads, so the process has one account, as it has one peak of memory.
static ACCOUNT: Mutex<BTreeMap<(String, String), Usage>> = Mutex::new(BTreeMap::new());

/// The requests of this process until now, by address and model.
#[must_use]
pub fn usage() -> Vec<Usage> {
    ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
}

/// The requests of this process since an earlier [`usage`]. Models without requests since then are left out.
#[must_use]
pub fn usage_since(before: &[Usage]) -> Vec<Usage> {
    let less = |now: Usage| {
        let then = before.iter().find(|then| then.base_url == now.base_url && then.model == now.model);
        let Some(then) = then else { return now };
        Usage {
            requests: now.requests - then.requests,
            retries: now.retries - then.retries,
            cached: now.cached - then.cached,
            input_tokens: now.input_tokens - then.input_tokens,
            output_tokens: now.output_tokens - then.output_tokens,
            cost: now.cost.map(|cost| cost - then.cost.unwrap_or(0.0)),
            ..now
        }
    };
    usage().into_iter().map(less).filter(|usage| usage.requests + usage.cached > 0).collect()
}

/// Changes the entry of a model.
pub(crate) fn record(base_url: &str, model: &str, change: impl FnOnce(&mut Usage)) {
    let mut account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = account.entry((base_url.to_owned(), model.to_owned())).or_insert_with(|| Usage {
        base_url: base_url.to_owned(),
        model: model.to_owned(),
        ..Usage::default()
    });
    change(entry);
}

/// The input and output tokens that a response states. Embeddings and rankings have no output.
pub(crate) fn tokens(response: &Value) -> (u64, u64) {
    let usage = &response["usage"];
    let count = |name: &str| usage[name].as_u64();
    let output = count("completion_tokens").or_else(|| count("output_tokens"));
    let input = count("prompt_tokens").or_else(|| count("input_tokens"));
    let input = input.or_else(|| Some(count("total_tokens")?.saturating_sub(output.unwrap_or(0))));
    (input.unwrap_or(0), output.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_account_is_by_model_and_a_part_of_it_is_since_a_time() {
        let own = |all: Vec<Usage>| all.into_iter().find(|usage| usage.base_url == "account-test");
        record("account-test", "m", |usage| usage.requests += 2);
        let before = usage();
        assert_eq!(own(usage_since(&before)), None);
        record("account-test", "m", |usage| (usage.requests, usage.cost) = (usage.requests + 3, Some(0.5)));
        let since = own(usage_since(&before)).unwrap();
        assert_eq!((since.requests, since.cost), (3, Some(0.5)));
    }

    #[test]
    fn tokens_are_those_that_the_endpoint_counts() {
        let of = |usage: Value| tokens(&json!({ "usage": usage }));
        assert_eq!(of(json!({ "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9 })), (7, 2));
        assert_eq!(of(json!({ "total_tokens": 5 })), (5, 0));
        assert_eq!(of(Value::Null), (0, 0));
    }
}
