//! Sentence templates, read from `wording.txt`.

use std::collections::BTreeMap;

use super::facts::{Class, FactsError, Pid};

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Its label.
    Plain,
    /// Its label, with "the" if English requires it.
    The,
    /// Its label with "a" or "an".
    A,
}

/// All templates of one relation and class of subject.
#[derive(Clone, Debug)]
pub(crate) struct Wording {
    /// How objects are written.
    pub style: Style,
    /// The kind of the object ("city").
    pub noun: String,
    /// Whether short-answer datasets use it.
    pub asked: bool,
    templates: BTreeMap<String, Vec<String>>,
}

impl Wording {
    /// The templates under a key; the reader has checked that each key has one.
    pub(crate) fn list(&self, key: &str) -> &[String] {
        self.templates.get(key).map_or(&[], Vec::as_slice)
    }

    /// The first template under a key.
    pub(crate) fn one(&self, key: &str) -> &str {
        self.list(key).first().map_or("", String::as_str)
    }
}

/// The whole wording file.
#[derive(Clone, Debug)]
pub(crate) struct Wordings(BTreeMap<(Pid, Class), Wording>);

const KEYS: [(&str, usize); 10] = [
    ("page", 4),
    ("q", 1),
    ("trivia", 1),
    ("claim", 2),
    ("ask", 2),
    ("tell", 2),
    ("zs", 1),
    ("clause", 1),
    ("same", 1),
    ("both", 1),
];

impl Wordings {
    /// Reads the wording that is compiled in.
    pub(crate) fn bundled() -> Result<Self, FactsError> {
        Self::parse(include_str!("wording.txt"))
    }

    /// Reads a wording file.
    ///
    /// # Errors
    /// A line outside a block or without `key: text`, and a block with too few templates.
    pub(crate) fn parse(text: &str) -> Result<Self, FactsError> {
        let mut blocks: BTreeMap<(Pid, Class), Wording> = BTreeMap::new();
        let mut open = None;
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &str| FactsError(format!("wording, line {}: {what}: {line:?}", number + 1));
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(head) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                let (pid, class) = head.split_once(' ').ok_or_else(|| wrong("expected [property class]"))?;
                let class = Class::parse(class).ok_or_else(|| wrong("expected person, place or body"))?;
                let key = (Pid::parse(pid)?, class);
                let blank = Wording {
                    style: Style::Plain,
                    noun: String::new(),
                    asked: true,
                    templates: BTreeMap::new(),
                };
                blocks.insert(key, blank);
                open = Some(key);
                continue;
            }
            let (key, value) = line.split_once(": ").ok_or_else(|| wrong("expected `key: text`"))?;
            let block = open.and_then(|key| blocks.get_mut(&key)).ok_or_else(|| wrong("no block is open"))?;
            match (key, value) {
                ("style", "plain") => block.style = Style::Plain,
                ("style", "the") => block.style = Style::The,
                ("style", "a") => block.style = Style::A,
                ("noun", noun) => block.noun = noun.to_owned(),
                ("qa", "no") => block.asked = false,
                ("head", _) => block.templates.entry(key.to_owned()).or_default().push(value.to_owned()),
                _ if KEYS.iter().any(|(known, _)| *known == key) => {
                    block.templates.entry(key.to_owned()).or_default().push(value.to_owned());
                }
                _ => return Err(wrong("unknown key or value")),
            }
        }
        for ((pid, class), block) in &blocks {
            for (key, least) in KEYS {
                if block.list(key).len() < least {
                    return Err(FactsError(format!(
                        "wording of {pid} {class:?}: fewer than {least} of `{key}`"
                    )));
                }
            }
            if block.list("ask").len() != block.list("tell").len() {
                return Err(FactsError(format!("wording of {pid} {class:?}: every `ask` needs its `tell`")));
            }
        }
        Ok(Self(blocks))
    }

    /// The templates of a relation for a class of subject.
    pub(crate) fn of(&self, pid: Pid, class: Class) -> Option<&Wording> {
        self.0.get(&(pid, class))
    }
}
