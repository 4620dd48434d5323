//! The files of the page, which are part of the program.

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: path, type, content.
pub(crate) const FILES: &[(&str, &str, &[u8])] = &[
    ("/", HTML, include_bytes!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_bytes!("../page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_bytes!("../page/icon.svg")),
    ("/page/answer.js", SCRIPT, include_bytes!("../page/answer.js")),
    ("/page/api.js", SCRIPT, include_bytes!("../page/api.js")),
    ("/page/app.js", SCRIPT, include_bytes!("../page/app.js")),
    ("/page/ask.js", SCRIPT, include_bytes!("../page/ask.js")),
    ("/page/browse.js", SCRIPT, include_bytes!("../page/browse.js")),
    ("/page/compare.js", SCRIPT, include_bytes!("../page/compare.js")),
    ("/page/dom.js", SCRIPT, include_bytes!("../page/dom.js")),
    ("/page/knowledge.js", SCRIPT, include_bytes!("../page/knowledge.js")),
    ("/page/parts.js", SCRIPT, include_bytes!("../page/parts.js")),
    ("/page/runs.js", SCRIPT, include_bytes!("../page/runs.js")),
    ("/page/theme.js", SCRIPT, include_bytes!("../page/theme.js")),
];

/// What a browser may load and do on the page: files of this server alone.
pub(crate) const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self'; script-src 'self'; \
                                 style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_that_the_page_imports_is_served() {
        let text = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
        for (path, kind, content) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for import in text(content).split("from \"./").skip(1) {
                let name = import.split('"').next().unwrap();
                assert!(
                    FILES.iter().any(|(path, ..)| *path == format!("/page/{name}")),
                    "{path}: {name} ({kind})"
                );
            }
        }
        let page = text(FILES[0].2);
        for file in page.split("\"page/").skip(1) {
            let name = file.split('"').next().unwrap();
            assert!(FILES.iter().any(|(path, ..)| *path == format!("/page/{name}")), "{name}");
        }
        // The policy refuses scripts and styles in the page itself.
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
    }
}
