use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use super::{ChatMessage, ChatTemplate, without_generation_marks};
use crate::Error;

#[derive(Deserialize)]
struct Fixtures {
    templates: BTreeMap<String, Fixture>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Fixture {
    text: String,
    tokens: BTreeMap<String, String>,
}

/// The output of `transformers` for a conversation: a text, or an error that the template raises.
#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<(String, String)>,
    add_generation_prompt: bool,
    expected: Option<String>,
    error: Option<String>,
}

fn role(name: &str) -> &'static str {
    ["system", "user", "assistant"].into_iter().find(|role| *role == name).unwrap()
}

/// The chain of causes of an error.
fn said(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {cause}")
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).unwrap();
}

#[test]
fn conversations_are_written_as_transformers_writes_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/templates.json");
    let fixtures: Fixtures = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((fixtures.templates.len(), fixtures.cases.len()), (5, 20));
    let folder = tempfile::tempdir().unwrap();
    for Case { template, messages, add_generation_prompt, expected, error } in fixtures.cases {
        let Fixture { text, tokens } = &fixtures.templates[&template];
        write(folder.path(), "chat_template.jinja", text);
        write(folder.path(), "tokenizer_config.json", &serde_json::to_string(tokens).unwrap());
        let messages: Vec<ChatMessage> =
            messages.into_iter().map(|(name, content)| ChatMessage::new(role(&name), content)).collect();
        // The date of the script, 26 July 2024.
        let opened = ChatTemplate::open(folder.path()).unwrap().unwrap().at(1_721_952_000);
        match (opened.render(&messages, add_generation_prompt), expected, error) {
            (Ok(text), Some(expected), _) => assert_eq!(text, expected, "{template}: {messages:?}"),
            (Err(found), None, Some(error)) => assert!(said(&found).contains(&error), "{}", said(&found)),
            (found, expected, error) => panic!("{template}: {found:?}, {expected:?}, {error:?}"),
        }
    }
}

/// An expression, or a template, and its text.
#[derive(Deserialize)]
struct Expression {
    expression: Option<String>,
    template: Option<String>,
    expected: String,
}

#[test]
fn expressions_have_the_values_of_jinja2() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/expressions.json");
    let cases: Vec<Expression> = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for Expression { expression, template, expected } in cases {
        let text = template.unwrap_or_else(|| format!("{{{{ ({})|string }}}}", expression.unwrap()));
        write(folder.path(), "chat_template.jinja", &text);
        let template = ChatTemplate::open(folder.path()).unwrap().unwrap();
        match template.render(&[ChatMessage::new("user", "w5 w6")], false) {
            Ok(found) if found == expected => {}
            Ok(found) => wrong.push(format!("{text}: expected {expected}, found {found}")),
            Err(error) => wrong.push(format!("{text}: {}", said(&error))),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_template_is_found_wherever_a_folder_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let rendered = || {
        let template = ChatTemplate::open(folder.path()).unwrap();
        template.map(|template| template.render(&[ChatMessage::new("user", "a")], true).unwrap())
    };
    assert_eq!(rendered(), None);
    write(folder.path(), "chat_template.json", r#"{"chat_template": "json {{ eos_token }}"}"#);
    write(
        folder.path(),
        "special_tokens_map.json",
        r#"{"eos_token": {"content": "<end>", "lstrip": false}}"#,
    );
    assert_eq!(rendered().unwrap(), "json <end>");
    let several = r#"{"eos_token": "</s>", "bos_token": null, "chat_template":
        [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}config {{ eos_token }}"}]}"#;
    write(folder.path(), "tokenizer_config.json", several);
    assert_eq!(rendered().unwrap(), "config </s>");
    write(folder.path(), "chat_template.jinja", "jinja {{ messages[0].content }}");
    assert_eq!(rendered().unwrap(), "jinja a");
    write(folder.path(), "chat_template.jinja", " \n");
    assert_eq!(rendered(), None);
}

#[test]
fn what_is_no_template_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, text: &str| {
        write(folder.path(), name, text);
        said(&ChatTemplate::open(folder.path()).unwrap_err())
    };
    let found = refused("tokenizer_config.json", r#"{"chat_template": [{"name": "a", "template": ""}]}"#);
    assert!(
        found.contains("field `chat_template`: expected a template of the name `default`, found `a`"),
        "{found}"
    );
    let found = refused("tokenizer_config.json", r#"{"chat_template": 3}"#);
    assert!(found.contains("tokenizer_config.json: field `chat_template`"), "{found}");
    let found = refused("chat_template.jinja", "a\n{% if %}");
    assert!(
        found.contains("chat_template.jinja: chat template: syntax error") && found.contains(":2"),
        "{found}"
    );
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let ranges = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{{ c }}";
    write(
        folder.path(),
        "chat_template.jinja",
        &format!("{ranges}{{% endfor %}}{{% endfor %}}{{% endfor %}}"),
    );
    let template = ChatTemplate::open(folder.path()).unwrap().unwrap();
    let error = template.render(&[ChatMessage::new("user", "a")], true).unwrap_err();
    assert!(said(&error).contains("fuel"), "{}", said(&error));
}

#[test]
fn marks_of_training_keep_their_white_space_control() {
    let marked = "{%- generation %}a{% endgeneration -%} {% generations %}";
    assert_eq!(without_generation_marks(marked), "{%- if true %}a{% endif -%} {% generations %}");
}

#[test]
fn default_system_messages_of_templates_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let default = |text: &str| {
        write(folder.path(), "chat_template.jinja", text);
        ChatTemplate::open(folder.path()).unwrap().unwrap().default_system()
    };
    let turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
    let first = "{% if messages[0].role != 'system' %}<system>Be kind.{% endif %}";
    assert_eq!(default(&format!("{first}{turns}")).as_deref(), Some("Be kind."));
    assert_eq!(default(turns), None);
    // Words that stand there with or without the conversation's own.
    assert_eq!(default(&format!("<system>Today.{turns}")), None);
    let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
    assert_eq!(default(&format!("{refuses}{turns}")), None);
}
