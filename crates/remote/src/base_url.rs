//! The address of an endpoint.

use ureq::http::Uri;

/// The address that the routes of an endpoint begin with, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    url: String,
    is_local: bool,
}

/// What was expected, and what was found.
type Mistake = (&'static str, String);

impl BaseUrl {
    /// Parses an address of http or https. One without a path gets `/v1`.
    ///
    /// # Errors
    /// What was expected and found. Addresses that can hold a secret are not repeated.
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        const EXPECTED: &str = "an address such as `http://localhost:8000/v1`";
        let wrong = || (EXPECTED, format!("`{text}`"));
        if text.contains('@') {
            let expected =
                "an address without a user or a password; a key belongs into the variable `api-key-env`";
            return Err((expected, "one with `@`".into()));
        }
        if text.contains(['?', '#']) {
            let expected = "an address without `?` and `#`; a key belongs into the variable `api-key-env`";
            return Err((expected, "one with them".into()));
        }
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong());
        }
        let path = uri.path().trim_end_matches('/');
        for route in ["/completions", "/embeddings", "/rerank", "/models"] {
            if path.ends_with(route) {
                return Err(("the address without the route of a request", format!("`{route}` at its end")));
            }
        }
        let url = text.trim_end_matches('/').to_owned();
        let url = if path.is_empty() { url + "/v1" } else { url };
        let host = host.trim_matches(['[', ']']);
        let is_local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        Ok(Self { url, is_local })
    }

    /// The address.
    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// Whether it is this machine's, which no proxy can reach.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// The address of a route.
    pub(crate) fn join(&self, route: &str) -> String {
        format!("{}/{route}", self.url)
    }

    /// The address of a route next to `/v1`.
    pub(crate) fn at_root(&self, route: &str) -> String {
        format!("{}/{route}", self.url.strip_suffix("/v1").unwrap_or(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_path_gets_the_version_of_the_api() {
        for (text, expected) in [
            ("http://localhost:8000", "http://localhost:8000/v1/x"),
            ("http://localhost:8000/", "http://localhost:8000/v1/x"),
            ("http://localhost:8000/v1/", "http://localhost:8000/v1/x"),
            ("https://a.org/openai/v1", "https://a.org/openai/v1/x"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().join("x"), expected);
        }
        assert_eq!(BaseUrl::parse("http://a:1").unwrap().at_root("rerank"), "http://a:1/rerank");
        assert!(BaseUrl::parse("http://[::1]:1").unwrap().is_local());
        assert!(!BaseUrl::parse("http://a.org").unwrap().is_local());
    }

    #[test]
    fn other_addresses_are_mistakes_that_repeat_no_secret() {
        for text in ["", "localhost:8000", "ftp://a.org", "http://", "/v1", "http://a b"] {
            assert!(BaseUrl::parse(text).is_err(), "{text}");
        }
        assert!(BaseUrl::parse("http://a.org/v1/chat/completions").unwrap_err().1.contains("/completions"));
        for text in ["https://me:secret@a.org/v1", "https://a.org/v1?key=secret"] {
            let (expected, found) = BaseUrl::parse(text).unwrap_err();
            assert!(expected.contains("api-key-env") && !found.contains("secret"), "{found}");
        }
    }
}
