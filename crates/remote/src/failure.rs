//! Requests without a usable response: whether to repeat them, and when.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use ureq::http::{HeaderMap, StatusCode};

use crate::secret::Secret;

/// Characters of an endpoint's message that are shown.
const SHOWN: usize = 500;

/// A request without a usable response.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) problem: String,
    /// The status with which the endpoint refused it.
    pub(crate) refused: Option<u16>,
    pub(crate) again: Again,
    /// Whether the endpoint limits the rate of requests, or asks for a wait. It then works.
    pub(crate) is_limit: bool,
}

/// Whether a request is repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Again {
    /// It would fail again.
    Never,
    /// After the usual wait.
    Later,
    /// After the wait that the endpoint asks for.
    After(Duration),
}

impl Failure {
    /// A failure of the network or of a response's form, which may not happen again.
    pub(crate) fn passing(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), refused: None, again: Again::Later, is_limit: false }
    }

    pub(crate) fn of_client(error: &ureq::Error, secret: Option<&Secret>) -> Self {
        use ureq::Error::{
            BodyExceedsLimit, BodyStalled, ConnectionFailed, HostNotFound, Io, Protocol, Timeout,
        };
        let problem = hidden(secret, &error.to_string());
        let passes =
            matches!(error, BodyStalled | ConnectionFailed | HostNotFound | Io(_) | Protocol(_) | Timeout(_));
        let again = if passes && !matches!(error, BodyExceedsLimit(_)) { Again::Later } else { Again::Never };
        Self { problem, refused: None, again, is_limit: false }
    }

    /// A status other than success.
    pub(crate) fn of_status(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        secret: Option<&Secret>,
    ) -> Self {
        let code = status.as_u16();
        let text = message(body, secret);
        let text =
            if text.is_empty() { status.canonical_reason().unwrap_or("no message").into() } else { text };
        if status.is_redirection() {
            let problem =
                "a redirect, which is not followed: the key belongs to this address alone".to_owned();
            return Self { problem, refused: Some(code), again: Again::Never, is_limit: false };
        }
        // An empty account does not fill by waiting.
        let is_empty = text.contains("insufficient_quota") || quota(body);
        let passes = (matches!(code, 408 | 425 | 429) && !is_empty) || status.is_server_error();
        if !passes {
            return Self { problem: text, refused: Some(code), again: Again::Never, is_limit: false };
        }
        let asked = wait(headers, SystemTime::now());
        let is_limit = code == 429 || asked.is_some_and(|asked| !asked.is_zero());
        let again = asked.map_or(Again::Later, Again::After);
        Self { problem: format!("status {code}: {text}"), refused: None, again, is_limit }
    }
}

/// The warning of an attempt, counted from 1, that is repeated after a wait.
pub(crate) fn repeated(attempt: usize, problem: &str, wait: Duration) -> String {
    format!("attempt {attempt}: {problem}; the next one is in {:.1} s", wait.as_secs_f64())
}

fn hidden(secret: Option<&Secret>, text: &str) -> String {
    secret.map_or_else(|| text.to_owned(), |secret| secret.hide(text))
}

/// Whether an error says that the account has no credit left.
fn quota(body: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    ["code", "type"].iter().any(|name| value["error"][name] == "insufficient_quota")
}

/// The message of an error's body: the field that servers use for it, or the body's text. It is one line without the key,
/// and is cut only after the key is hidden.
pub(crate) fn message(body: &[u8], secret: Option<&Secret>) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let found = text_of(&value);
    let text = found.unwrap_or_else(|| match value {
        Value::Null => String::from_utf8_lossy(body).into_owned(),
        other => other.to_string(),
    });
    let text = hidden(secret, &text).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text,
    }
}

/// The text of an error: `error.message`, `error`, `message` or `detail`.
fn text_of(value: &Value) -> Option<String> {
    let places = [&value["error"]["message"], &value["error"], &value["message"], &value["detail"]];
    places.into_iter().find_map(Value::as_str).map(str::to_owned)
}

/// The wait that an endpoint asks for: `retry-after-ms`, or `Retry-After` in seconds or as a date.
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok().filter(|wait| wait.is_finite() && *wait >= 0.0);
    let millis = number("retry-after-ms").map(|millis| millis / 1000.0);
    if let Some(seconds) = millis.or_else(|| number("retry-after")) {
        // A number that is beyond any wait.
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let date = httpdate::parse_http_date(text("retry-after")?).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, header: Option<(&'static str, &str)>, body: &str) -> Failure {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        Failure::of_status(StatusCode::from_u16(code).unwrap(), &headers, body.as_bytes(), None)
    }

    #[test]
    fn a_status_says_whether_and_when_a_request_is_repeated() {
        let seconds = |count| Again::After(Duration::from_secs_f64(count));
        for (code, header, again) in [
            (429, Some(("retry-after", "7")), seconds(7.0)),
            (429, Some(("retry-after-ms", "250")), seconds(0.25)),
            (503, Some(("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")), seconds(0.0)),
            (429, Some(("retry-after", "soon")), Again::Later),
            (429, Some(("retry-after", "-1")), Again::Later),
            (429, Some(("retry-after", "inf")), Again::Later),
            (429, Some(("retry-after", "999999999999999999999")), Again::After(Duration::MAX)),
            (500, None, Again::Later),
            (529, None, Again::Later),
            (408, None, Again::Later),
            (400, None, Again::Never),
            (401, None, Again::Never),
            (404, None, Again::Never),
            (302, None, Again::Never),
        ] {
            let failure = of(code, header, "");
            assert_eq!(failure.again, again, "{code} {header:?}");
            assert_eq!(failure.is_limit, code == 429, "{code} {header:?}");
            assert_eq!(failure.refused.is_some(), again == Again::Never, "{code}");
        }
        assert!(of(503, Some(("retry-after", "7")), "").is_limit);
        let body = r#"{"error": {"message": "no credit", "code": "insufficient_quota"}}"#;
        assert_eq!(of(429, None, body).again, Again::Never);
    }

    #[test]
    fn a_warning_says_how_long_the_wait_is() {
        let text = repeated(2, "status 429: slow down", Duration::from_millis(7300));
        assert_eq!(text, "attempt 2: status 429: slow down; the next one is in 7.3 s");
    }

    #[test]
    fn a_date_is_a_wait_from_now() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        let before = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:07 GMT").unwrap();
        assert_eq!(wait(&headers, before), Some(Duration::from_secs(30)));
    }

    #[test]
    fn messages_come_from_the_fields_that_servers_use() {
        for (body, expected) in [
            (r#"{"error": {"message": "no such\n model"}}"#, "no such model"),
            (r#"{"error": "too long"}"#, "too long"),
            (r#"{"message": "m"}"#, "m"),
            (r#"{"detail": "d"}"#, "d"),
            (r#"{"detail": [1]}"#, r#"{"detail":[1]}"#),
            ("<html>Bad gateway</html>", "<html>Bad gateway</html>"),
            ("", ""),
        ] {
            assert_eq!(message(body.as_bytes(), None), expected);
        }
        assert!(message("é".repeat(2000).as_bytes(), None).ends_with("é .."));
    }
}
