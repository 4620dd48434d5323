//! The pages that the pipeline writes: templates with one style. A page needs no network. Only a sheet has a script, which
//! saves the votes.

use minijinja::{
    Environment, UndefinedBehavior, context,
    syntax::SyntaxConfig,
    value::{Serde, Value},
};
use serde::Serialize;

const BASE: &str = include_str!("base.html");
const STYLE: &str = include_str!("style.css");

/// The template of a page's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    /// It ends with `.html`, so that every value is escaped.
    name: &'static str,
    text: &'static str,
}

/// The page of a comparison of runs.
pub(crate) const COMPARISON: Template =
    Template { name: "comparison.html", text: include_str!("comparison.html") };

/// The page of a run's report.
pub(crate) const REPORT: Template = Template { name: "report.html", text: include_str!("report.html") };

/// A sheet of responses for annotators.
pub(crate) const SHEET: Template = Template { name: "sheet.html", text: include_str!("sheet.html") };

/// A page with a title and the content of a template.
///
/// # Panics
/// If `content` lacks a value that the template shows.
pub(crate) fn page(title: &str, template: Template, content: &impl Serialize) -> String {
    render(title, template, content).unwrap_or_else(|error| panic!("{}: {error}", template.name))
}

fn render(title: &str, template: Template, content: &impl Serialize) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    let body = environment.render_named_str(template.name, template.text, Serde(content))?;
    let (style, body) = (Value::from_safe_string(STYLE.into()), Value::from_safe_string(body));
    environment.render_named_str("base.html", BASE, context! { title, style, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_the_style_is_not() {
        let template = Template { name: "test.html", text: "<p>{{ text }}</p>" };
        let page = page("a<b", template, &std::collections::BTreeMap::from([("text", "\"c\" & d>")]));
        assert!(page.contains("<title>a&lt;b</title>") && page.contains("<h1>a&lt;b</h1>"), "{page}");
        assert_eq!((page.matches("<main>").count(), page.matches("</main>").count()), (1, 1));
        assert!(page.contains("<p>&quot;c&quot; &amp; d&gt;</p>"), "{page}");
        assert!(page.contains("font: 15px/1.55"), "{page}");
    }
}
