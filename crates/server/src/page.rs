//! The files of the page, which are part of the program.

/// The files of the page: path, type, content.
pub(crate) const FILES: &[(&str, &str, &[u8])] = &[
    ("/", "text/html; charset=utf-8", include_bytes!("../page/index.html")),
    ("/page/page.css", "text/css; charset=utf-8", include_bytes!("../page/page.css")),
    ("/page/page.js", "text/javascript; charset=utf-8", include_bytes!("../page/page.js")),
];

/// What a browser may load and do on the page: files of this server alone.
pub(crate) const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; \
                                 style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
