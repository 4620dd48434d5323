use serde::Deserialize;

use super::*;

#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Fields {
    name: String,
    #[serde(default)]
    depth: u32,
    #[serde(default)]
    inner: Inner,
}

#[derive(Deserialize, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Inner {
    beam_size: u32,
    ratio: f64,
}

fn read(text: &str, overrides: &[&str]) -> (Option<Fields>, Vec<String>) {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let text = Text::new(Path::new("c.toml"), text.to_owned(), &overrides);
    let mut document = Document::parse(&text);
    let fields = document.read_root(&["retriever"]);
    (fields, document.into_diagnostics().iter().map(Diagnostic::to_string).collect())
}

#[test]
fn an_override_that_can_hold_a_secret_is_not_repeated() {
    let (_, found) = read("name = \"x\"", &["inner.api-key-env=sk-secret", "base-url=http://me:sk-secret@a"]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|text| text.starts_with("override `inner.api-key-env=..`: ")), "{found:?}");
    assert!(found.iter().all(|text| !text.contains("sk-secret")), "{found:?}");
}

#[test]
fn a_wrong_workflow_is_told_with_the_nearest_one() {
    let text = Text::new(Path::new("c.toml"), "workflow = \"answr\"".to_owned(), &[]);
    let mut document = Document::parse(&text);
    assert!(!document.take_workflow(&["answer", "population"]));
    let found = document.into_diagnostics()[0].to_string();
    let expected =
        "c.toml:1: `workflow`: expected `answer` or `population`, found `answr`; did you mean `answer`?";
    assert_eq!(found, expected);
}

#[test]
fn every_mistake_is_found_with_line_and_nearest_key() {
    let text = "name = 3\ndepht = 1\n\n[inner]\nbeam-sise = 2\nratio = \"x\"\n[retreiver]\n";
    let (fields, found) = read(text, &[]);
    assert_eq!(fields, None);
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(found[0].starts_with("c.toml:1: `name`: expected a string, found the number 3"), "{found:?}");
    assert!(
        found[1].starts_with("c.toml:2: `depht`: unknown field") && found[1].ends_with("`depth`?"),
        "{found:?}"
    );
    assert!(
        found[2].starts_with("c.toml:5: `inner.beam-sise`") && found[2].ends_with("`beam-size`?"),
        "{found:?}"
    );
    assert_eq!(found[3], "c.toml:6: `inner.ratio`: expected a number, found the string \"x\"");
    // The names of stages only where they can be.
    assert!(found[1].contains(", `retriever`") && !found[2].contains("`retriever`"), "{found:?}");
    assert!(found[4].starts_with("c.toml:7: `retreiver`") && found[4].ends_with("`retriever`?"), "{found:?}");
}

#[test]
fn overrides_replace_and_are_named_when_wrong() {
    let text = "name = \"a\"\n[inner]\nratio = 0.5\n";
    let (fields, found) = read(text, &["inner.beam-size=4", "name=b c", "depth=2"]);
    assert_eq!(found, Vec::<String>::new());
    let inner = Inner { beam_size: 4, ratio: 0.5 };
    assert_eq!(fields, Some(Fields { name: "b c".into(), depth: 2, inner }));
    let (_, found) = read(text, &["inner.beam-sise=4", "depth", "depth=x"]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found.iter().any(|text| text.starts_with("override `inner.beam-sise=4`: `inner.beam-sise`")),
        "{found:?}"
    );
    assert!(found.iter().any(|text| text.starts_with("override `depth=x`: `depth`: expected ")), "{found:?}");
}

#[test]
fn a_key_leaves_the_config() {
    let text = "name = \"a\"\ndepth = 3\n[inner]\nbeam-size = 4\nratio = 0.5\n";
    let (fields, found) = read(text, &["~depth", "~inner.ratio", "inner.ratio=0.25"]);
    assert_eq!(found, Vec::<String>::new());
    let inner = Inner { beam_size: 4, ratio: 0.25 };
    assert_eq!(fields, Some(Fields { name: "a".into(), depth: 0, inner }));
    let (_, found) = read(text, &["~inner.ratios", "~depth.x", "~depth=3"]);
    assert_eq!(found[0], "override `~inner.ratios`: `inner.ratios`: the config has no such key");
    assert_eq!(found[1], "override `~depth.x`: `depth.x`: the config has no such key");
    assert!(found[2].starts_with("override `~depth=3`"), "{found:?}");
}

#[test]
fn a_key_of_an_earlier_version_is_reported_with_its_new_name() {
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Renamed {
        #[serde(default, rename = "validation-share")]
        _share: f64,
    }

    let text = Text::new(Path::new("c.toml"), "judged = 0.1\nhidden = 2\n".to_owned(), &[]);
    let mut document = Document::parse(&text);
    assert!(document.read_root::<Renamed>(&[]).is_some());
    let found: Vec<String> = document.into_diagnostics().iter().map(Diagnostic::to_string).collect();
    assert_eq!(found[0], "c.toml:1: `judged`: unknown key `judged`; it is `validation-share` now");
    assert!(found[1].starts_with("c.toml:2: `hidden`: unknown field"), "{found:?}");
}

#[test]
fn a_mistake_in_an_array_has_the_line_of_its_element() {
    let text = "inner = [\n  1,\n  2,\n]\n\n[[names]]\nfile = \"a\"\n\n[[names]]\nfile = \"b\"\n";
    let text = Text::new(Path::new("c.toml"), text.to_owned(), &[]);
    let mut document = Document::parse(&text);
    for key in ["inner[1]", "names[0].file", "names[1].file", "names[1].none", "names[2].file"] {
        document.report_key(key, "wrong");
    }
    let lines: Vec<usize> = document.into_diagnostics().iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [3, 6, 7, 9, 10]);
}

#[test]
fn a_missing_field_and_wrong_syntax_have_lines() {
    let (_, found) = read("depth = 1\n", &[]);
    assert_eq!(found, ["c.toml:1: `name`: is missing"]);
    let (_, found) = read("name = \"a\"\ndepth = = 2\n", &[]);
    assert!(found[0].starts_with("c.toml:2: "), "{found:?}");
}
