//! The page.

use std::sync::Arc;

use axum::http::header;

use crate::{
    State,
    http::Api,
    page::{FILES, POLICY},
};

pub(super) fn add(mut api: Api<Arc<State>>) -> Api<Arc<State>> {
    api = api.group("Page");
    for (path, kind, content) in FILES {
        let headers = [
            (header::CONTENT_TYPE, *kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        api = api.file(path, kind, "A file of the page", &[], async move || (headers, *content));
    }
    api
}
