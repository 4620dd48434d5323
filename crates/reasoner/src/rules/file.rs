//! Rules as text: four tab-separated columns, `predicted support confidence rule`, as in AnyBURL.
//!
//! A rule is `head <= atom, atom`. Its variables are `X` and `Y` for the head's arguments, and `A`, `B`, `C`
//! for the nodes between. Everything else is the name of a relation or an entity. Ambiguous names are in JSON
//! quotes.

use std::path::Path;

use sporran_kilt::{
    Error as FileError, jsonl,
    kb::{EntityId, KnowledgeBase, RelationId},
};

use super::{
    graph::Step,
    rule::{Clause, Rule, Shape, Side},
};
use crate::Result;

/// The variables, the head's first.
const VARIABLES: [&str; 5] = ["X", "Y", "A", "B", "C"];

/// The text of a rule without its counts.
pub fn text(clause: &Clause, kb: &KnowledgeBase) -> String {
    let entity = |id: u32| quoted(kb.entity_name(EntityId(id)));
    let atom = |relation: u32, subject: &str, object: &str| {
        format!("{}({subject},{object})", quoted(kb.relation_name(RelationId(relation))))
    };
    let length = clause.body.len();
    // The variables and constants at the nodes of the walk.
    let (head, first, last) = match clause.shape {
        Shape::Cyclic => (atom(clause.relation, "X", "Y"), "X", "Y".to_owned()),
        Shape::Constant { side, head, end } => {
            let last = end.map_or_else(|| VARIABLES[1 + length.max(1)].to_owned(), entity);
            match side {
                Side::Object => (atom(clause.relation, "X", &entity(head)), "X", last),
                Side::Subject => (atom(clause.relation, &entity(head), "Y"), "Y", last),
            }
        }
    };
    let node = |at: usize| match at {
        0 => first,
        at if at == length => last.as_str(),
        at => VARIABLES[1 + at],
    };
    let atoms: Vec<String> = clause
        .body
        .iter()
        .enumerate()
        .map(|(at, step)| match step.is_backward() {
            false => atom(step.relation(), node(at), node(at + 1)),
            true => atom(step.relation(), node(at + 1), node(at)),
        })
        .collect();
    format!("{head} <= {}", atoms.join(", "))
}

fn quoted(name: &str) -> String {
    let plain = !name.is_empty()
        && !VARIABLES.contains(&name)
        && !name.chars().any(|c| c.is_whitespace() || c.is_control() || "(),\"<".contains(c));
    if plain { name.to_owned() } else { serde_json::Value::String(name.to_owned()).to_string() }
}

/// Writes rules, one a line, in order.
///
/// # Errors
/// Write errors; then no file appears.
pub fn save(path: impl AsRef<Path>, rules: &[Rule], kb: &KnowledgeBase) -> Result<()> {
    let mut writer = jsonl::Writer::create(path)?;
    for rule in rules {
        let line =
            format!("{}\t{}\t{}\t{}", rule.predicted, rule.support, rule.confidence, text(&rule.clause, kb));
        writer.line(line.as_bytes())?;
    }
    writer.finish()?;
    Ok(())
}

/// Reads rules over a knowledge base.
///
/// # Errors
/// Read errors; a line that is no rule; a name that the knowledge base lacks. Errors have file, line and column.
pub fn load(path: impl AsRef<Path>, kb: &KnowledgeBase) -> Result<Vec<Rule>> {
    let path = path.as_ref();
    let mut rules = Vec::new();
    for (number, line) in jsonl::read_to_string(path)?.lines().enumerate() {
        if line.is_empty() {
            continue;
        }
        let rule = parse(line, kb)
            .map_err(|(field, message)| FileError::record(path, number as u64 + 1, field, message))?;
        rules.push(rule);
    }
    Ok(rules)
}

type Wrong = (&'static str, String);

fn parse(line: &str, kb: &KnowledgeBase) -> Result<Rule, Wrong> {
    let columns: Vec<&str> = line.split('\t').collect();
    let &[predicted, support, confidence, rule] = &columns[..] else {
        return Err((".", format!("expected 4 columns between tabs, found {}", columns.len())));
    };
    let count = |field, text: &str| {
        text.parse::<u32>().map_err(|_| (field, format!("expected a count, found `{text}`")))
    };
    let (predicted, support) = (count("predicted", predicted)?, count("support", support)?);
    let confidence = match confidence.parse::<f32>() {
        Ok(value) if (0.0..=1.0).contains(&value) => value,
        _ => return Err(("confidence", format!("expected a share from 0 to 1, found `{confidence}`"))),
    };
    let clause = clause(rule, kb).map_err(|message| ("rule", message))?;
    Ok(Rule { clause, predicted, support, confidence })
}

/// An argument of an atom.
#[derive(Clone, Debug, PartialEq)]
enum Term {
    /// A position in [`VARIABLES`].
    Variable(usize),
    Constant(u32),
}

struct Atom {
    relation: u32,
    subject: Term,
    object: Term,
}

fn clause(rule: &str, kb: &KnowledgeBase) -> Result<Clause, String> {
    let mut rest = rule;
    let head = atom(&mut rest, kb)?;
    expect(&mut rest, "<=")?;
    let mut atoms = Vec::new();
    while !rest.trim_start().is_empty() {
        if !atoms.is_empty() {
            expect(&mut rest, ",")?;
        }
        atoms.push(atom(&mut rest, kb)?);
    }
    let (x, y) = (Term::Variable(0), Term::Variable(1));
    let (mut at, side) = match (&head.subject, &head.object) {
        (Term::Variable(0), Term::Variable(1)) => (x, None),
        (Term::Variable(0), &Term::Constant(constant)) => (x, Some((Side::Object, constant))),
        (&Term::Constant(constant), Term::Variable(1)) => (y.clone(), Some((Side::Subject, constant))),
        _ => return Err("expected a head of `(X,Y)`, `(X,constant)` or `(constant,Y)`".to_owned()),
    };
    let mut body = Vec::new();
    for atom in atoms {
        let (step, to) = if atom.subject == at {
            (Step::forward(atom.relation), atom.object)
        } else if atom.object == at {
            (Step::backward(atom.relation), atom.subject)
        } else {
            return Err("expected atoms that each start where the previous one ends".to_owned());
        };
        body.push(step);
        at = to;
    }
    let shape = match (side, at) {
        (None, at) if at == y && !body.is_empty() => Shape::Cyclic,
        (None, _) => return Err("expected a body from `X` to `Y`".to_owned()),
        (Some((side, head)), Term::Constant(end)) => Shape::Constant { side, head, end: Some(end) },
        (Some((side, head)), Term::Variable(_)) => Shape::Constant { side, head, end: None },
    };
    Ok(Clause { relation: head.relation, shape, body })
}

fn expect(rest: &mut &str, what: &str) -> Result<(), String> {
    let text = rest.trim_start();
    let next: String = text.chars().take(12).collect();
    *rest = text.strip_prefix(what).ok_or_else(|| format!("expected `{what}`, found `{next}`"))?;
    Ok(())
}

fn atom(rest: &mut &str, kb: &KnowledgeBase) -> Result<Atom, String> {
    let relation = name(rest)?.0;
    let relation =
        kb.relation(&relation).ok_or_else(|| format!("the knowledge base has no relation `{relation}`"))?.0;
    expect(rest, "(")?;
    let subject = term(rest, kb)?;
    expect(rest, ",")?;
    let object = term(rest, kb)?;
    expect(rest, ")")?;
    Ok(Atom { relation, subject, object })
}

fn term(rest: &mut &str, kb: &KnowledgeBase) -> Result<Term, String> {
    let (name, quoted) = name(rest)?;
    if let (false, Some(at)) = (quoted, VARIABLES.iter().position(|variable| *variable == name)) {
        return Ok(Term::Variable(at));
    }
    let entity = kb.entity(&name).ok_or_else(|| format!("the knowledge base has no entity `{name}`"))?;
    Ok(Term::Constant(entity.0))
}

/// A name, and whether it was quoted.
fn name(rest: &mut &str) -> Result<(String, bool), String> {
    let text = rest.trim_start();
    if text.starts_with('"') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let name = values.next().and_then(Result::ok).ok_or("expected a closing quote")?;
        *rest = &text[values.byte_offset()..];
        return Ok((name, true));
    }
    let end = text.find(|c: char| c.is_whitespace() || "(),".contains(c)).unwrap_or(text.len());
    if end == 0 {
        return Err("expected a name".to_owned());
    }
    *rest = &text[end..];
    Ok((text[..end].to_owned(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kb() -> KnowledgeBase {
        let mut kb = KnowledgeBase::default();
        for name in ["Paris", "X", "a (b), c", "Rome"] {
            kb.add_entity(name).unwrap();
        }
        for name in ["lives", "/film/film/genre"] {
            kb.add_relation(name).unwrap();
        }
        kb
    }

    fn constant(side: Side, head: u32, end: Option<u32>) -> Shape {
        Shape::Constant { side, head, end }
    }

    #[test]
    fn rules_read_as_they_are_meant_and_come_back() {
        let kb = kb();
        let (f, b) = (Step::forward, Step::backward);
        let cases = [
            (Shape::Cyclic, vec![b(1)], "lives(X,Y) <= /film/film/genre(Y,X)"),
            (
                Shape::Cyclic,
                vec![f(0), b(1), f(0)],
                "lives(X,Y) <= lives(X,A), /film/film/genre(B,A), lives(B,Y)",
            ),
            (constant(Side::Object, 0, Some(1)), vec![f(0)], "lives(X,Paris) <= lives(X,\"X\")"),
            (
                constant(Side::Subject, 2, None),
                vec![f(0), f(0)],
                "lives(\"a (b), c\",Y) <= lives(Y,A), lives(A,B)",
            ),
            (constant(Side::Object, 3, None), vec![], "lives(X,Rome) <= "),
        ];
        let mut rules = Vec::new();
        for (shape, body, expected) in cases {
            let clause = Clause { relation: 0, shape, body };
            assert_eq!(text(&clause, &kb), expected);
            rules.push(Rule { clause, predicted: 7, support: 3, confidence: 0.1 });
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        save(file.path(), &rules, &kb).unwrap();
        assert_eq!(load(file.path(), &kb).unwrap(), rules);
    }

    #[test]
    fn what_is_no_rule_is_named_with_its_line_and_column() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good = "7\t3\t0.1\tlives(X,Y) <= lives(Y,X)\n";
        for (line, expected) in [
            ("7\t3\t0.1", "expected 4 columns between tabs, found 3"),
            ("7\tx\t0.1\tlives(X,Y) <= lives(Y,X)", "field `support`: expected a count, found `x`"),
            ("7\t3\t2\tlives(X,Y) <= lives(Y,X)", "field `confidence`"),
            ("7\t3\t0.1\tdies(X,Y) <= lives(Y,X)", "no relation `dies`"),
            ("7\t3\t0.1\tlives(X,Oslo) <= lives(Y,X)", "no entity `Oslo`"),
            ("7\t3\t0.1\tlives(X,Y) <= lives(A,B)", "start where the previous one ends"),
            ("7\t3\t0.1\tlives(X,Y) <= lives(X,A)", "a body from `X` to `Y`"),
            ("7\t3\t0.1\tlives(X,Y) lives(X,A)", "expected `<=`, found `lives(X,A)`"),
            ("7\t3\t0.1\tlives(A,B) <= lives(X,A)", "expected a head"),
        ] {
            std::fs::write(file.path(), format!("{good}{line}\n")).unwrap();
            let message = load(file.path(), &kb()).unwrap_err().to_string();
            assert!(message.contains(":2: ") && message.contains(expected), "{message}");
        }
    }
}
