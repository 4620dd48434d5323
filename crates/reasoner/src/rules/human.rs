//! Rules that people wrote or scored, in the form of BIMR (Lv et al. 2021): a Horn rule with its score.
//!
//! A line is `RULE` or `RULE TAB SCORE`. A rule is `head <- atom, atom`, and an atom is `relation(X, Y)`. A
//! relation is an id or a name of the knowledge base. All arguments are variables, with any names. The body
//! leads from the head's first argument to its second one, and its atoms may have either direction. Also
//! `<=` or `←` separates the head, and `∧` separates atoms. The score is BIMR's interpretability, 0 to 1; it
//! becomes the rule's confidence. Without a score it is 1. Lines that start with `#` are comments.

use std::path::Path;

use rustc_hash::FxHashMap;
use sporran_kilt::{
    Error as FileError, jsonl,
    kb::{KnowledgeBase, RelationId},
};

use super::{
    graph::Step,
    rule::{Clause, Rule, Shape},
};
use crate::{Error, Result};

/// The largest number of atoms in a body, for which rules have variables when they are written.
const LONGEST: usize = 4;

/// The rules of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HumanRules {
    /// Those over relations of the knowledge base, in the order of the file. They have no counts: predictions and support
    /// are 0.
    pub rules: Vec<Rule>,
    /// The number of rules with a relation that the knowledge base lacks.
    pub unknown: usize,
}

/// Reads rules over a knowledge base. Rules with a relation that it lacks are left out and counted.
///
/// # Errors
/// Read errors; a line that is no rule; a relation that has the name of another one; a file with rules of which the
/// knowledge base has none. Errors of lines have file, line and column.
pub fn load_human(path: impl AsRef<Path>, kb: &KnowledgeBase) -> Result<HumanRules> {
    let path = path.as_ref();
    let names = Names::new(kb);
    let mut found = HumanRules::default();
    for (number, line) in jsonl::read_to_string(path)?.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let rule = parse(line, &names)
            .map_err(|(field, message)| FileError::record(path, number as u64 + 1, field, message))?;
        match rule {
            Some(rule) => found.rules.push(rule),
            None => found.unknown += 1,
        }
    }
    if found.rules.is_empty() && found.unknown > 0 {
        let message = format!(
            "{}: expected rules over relations of the knowledge base, found none in {} rules",
            path.display(),
            found.unknown
        );
        return Err(Error::Argument(message));
    }
    Ok(found)
}

/// The relations of a knowledge base by id and by lower-case name; `None` for a name of several relations.
struct Names<'k> {
    kb: &'k KnowledgeBase,
    named: FxHashMap<String, Option<RelationId>>,
}

impl<'k> Names<'k> {
    fn new(kb: &'k KnowledgeBase) -> Self {
        let mut named: FxHashMap<String, Option<RelationId>> = FxHashMap::default();
        for id in (0..kb.relation_count() as u32).map(RelationId) {
            for name in kb.relation_labels(id) {
                let known = named.entry(name.to_lowercase()).or_insert(Some(id));
                *known = known.filter(|known| *known == id);
            }
        }
        Self { kb, named }
    }

    /// The relation of an id or a name; `None` if there is none.
    fn relation(&self, name: &str) -> Result<Option<u32>, String> {
        if let Some(id) = self.kb.relation(name) {
            return Ok(Some(id.0));
        }
        match self.named.get(&name.to_lowercase()) {
            Some(Some(id)) => Ok(Some(id.0)),
            Some(None) => Err(format!("several relations have the name `{name}`; give an id")),
            None => Ok(None),
        }
    }
}

/// The rule of a line; `None` if the knowledge base lacks one of its relations.
fn parse(line: &str, names: &Names<'_>) -> Result<Option<Rule>, (&'static str, String)> {
    let (rule, score) = match line.split_once('\t') {
        Some((rule, score)) => (rule, Some(score.trim())),
        None => (line, None),
    };
    let confidence = match score.map(|score| (score, score.parse::<f32>())) {
        None => 1.0,
        Some((_, Ok(value))) if (0.0..=1.0).contains(&value) => value,
        Some((score, _)) => return Err(("score", format!("expected a share from 0 to 1, found `{score}`"))),
    };
    let clause = clause(rule, names).map_err(|message| ("rule", message))?;
    Ok(clause.map(|clause| Rule { clause, predicted: 0, support: 0, confidence }))
}

fn clause(rule: &str, names: &Names<'_>) -> Result<Option<Clause>, String> {
    let parts = ["<=", "<-", "←"].iter().find_map(|arrow| rule.split_once(arrow));
    let (head, mut rest) = parts.ok_or("expected `<-` between head and body")?;
    let (head, after) = atom(head, names)?;
    if !after.is_empty() {
        return Err(format!("expected `<-` after the head, found `{after}`"));
    }
    if head.from == head.to {
        return Err("expected two different arguments of the head".to_owned());
    }
    let mut body: Option<Vec<Step>> = Some(Vec::new());
    let mut atoms = 0;
    let mut at = head.from;
    let mut visited = vec![at];
    loop {
        let (next, after) = atom(rest, names)?;
        let (step, to) = if next.from == at {
            (next.relation.map(Step::forward), next.to)
        } else if next.to == at {
            (next.relation.map(Step::backward), next.from)
        } else {
            return Err("expected atoms that each start where the previous one ends".to_owned());
        };
        if visited.contains(&to) {
            return Err(format!("expected a body that visits `{to}` once"));
        }
        // One unknown relation makes the whole rule unknown, but its form is still checked.
        body = body.zip(step).map(|(mut body, step)| {
            body.push(step);
            body
        });
        atoms += 1;
        visited.push(to);
        at = to;
        rest = match after.strip_prefix(',').or_else(|| after.strip_prefix('∧')) {
            Some(rest) => rest,
            None if after.is_empty() => break,
            None => return Err(format!("expected `,` between atoms, found `{after}`")),
        };
    }
    if at != head.to {
        return Err(format!("expected a body from `{}` to `{}`", head.from, head.to));
    }
    if atoms > LONGEST {
        return Err(format!("expected at most {LONGEST} atoms in the body, found {atoms}"));
    }
    let clause = |(relation, body)| Clause { relation, shape: Shape::Cyclic, body };
    Ok(head.relation.zip(body).map(clause))
}

struct Atom<'t> {
    /// `None` if the knowledge base lacks it.
    relation: Option<u32>,
    from: &'t str,
    to: &'t str,
}

/// The first atom of a text, and the text after it.
fn atom<'t>(text: &'t str, names: &Names<'_>) -> Result<(Atom<'t>, &'t str), String> {
    let wrong = || format!("expected an atom `relation(X, Y)`, found `{}`", text.trim());
    let (atom, rest) = text.split_once(')').ok_or_else(wrong)?;
    let (relation, arguments) = atom.split_once('(').ok_or_else(wrong)?;
    let (from, to) = arguments.split_once(',').ok_or_else(wrong)?;
    let (from, to) = (from.trim(), to.trim());
    if from.is_empty() || to.is_empty() || to.contains(',') {
        return Err(wrong());
    }
    Ok((Atom { relation: names.relation(relation.trim())?, from, to }, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kb() -> KnowledgeBase {
        let mut kb = KnowledgeBase::default();
        for (id, label) in
            [("P6", "head of government"), ("P527", "has part"), ("P36", "capital"), ("P7", "x"), ("P8", "X")]
        {
            let id = kb.add_relation(id).unwrap();
            kb.set_relation_label(id, label);
        }
        kb
    }

    fn read(text: &str) -> Result<HumanRules> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load_human(file.path(), &kb())
    }

    #[test]
    fn rules_name_relations_by_id_or_label_and_have_scores() {
        let text = "# BIMR\nhead of government(x, y) <- has part(x,a), Capital(b, a), P6(b,y)\t0.5\n\n\
                    P6(X,Y) ← P527(X,Z) ∧ P6(Z,Y)\nP527(X,Y) <= P527(Y,X)\t1\n";
        let HumanRules { rules, unknown } = read(text).unwrap();
        assert_eq!(unknown, 0);
        let (f, b) = (Step::forward, Step::backward);
        let found: Vec<(u32, &[Step], f32)> =
            rules.iter().map(|rule| (rule.clause.relation, &rule.clause.body[..], rule.confidence)).collect();
        assert_eq!(
            found,
            [(0, &[f(1), b(2), f(0)][..], 0.5), (0, &[f(1), f(0)][..], 1.0), (1, &[b(1)][..], 1.0)]
        );
        assert!(rules.iter().all(|rule| rule.clause.shape == Shape::Cyclic && rule.support == 0));
    }

    #[test]
    fn rules_of_absent_relations_are_counted() {
        let known = "P6(X,Y) <- P527(X,A), P36(A,Y)\n";
        let found =
            read(&format!("P9(X,Y) <- P527(X,Y)\n{known}P6(X,Y) <- P527(X,A), spouse(A,Y)\t0.3\n")).unwrap();
        assert_eq!((found.rules, found.unknown), (read(known).unwrap().rules, 2));
        let error = read("P9(X,Y) <- P527(X,Y)\n").unwrap_err().to_string();
        assert!(
            error.contains("expected rules over relations") && error.contains("none in 1 rules"),
            "{error}"
        );
        assert_eq!(read("# none\n").unwrap(), HumanRules::default());
    }

    #[test]
    fn what_is_no_rule_is_named_with_its_line_and_column() {
        for (line, expected) in [
            ("P6(X,Y) P527(X,Y)", "expected `<-`"),
            ("P6(X,Y) <- ", "expected an atom"),
            ("P6(X) <- P527(X,Y)", "expected an atom"),
            ("P6(X,Y) <- P527(X,A)", "a body from `X` to `Y`"),
            ("P6(X,Y) <- P527(A,B)", "start where the previous one ends"),
            ("P6(X,Y) <- P527(X,A), P36(A,X), P6(X,Y)", "visits `X` once"),
            ("P6(X,Y) <- P527(X,A) P6(A,Y)", "expected `,` between atoms"),
            ("P6(X,Y) <- P6(X,A), P6(A,B), P6(B,C), P6(C,D), P6(D,Y)", "at most 4 atoms"),
            ("P6(X,X) <- P527(X,A)", "different arguments"),
            ("P9(X,X) <- P527(X,A)", "different arguments"),
            ("x(X,Y) <- P527(X,Y)", "several relations have the name `x`"),
            ("P6(X,Y) <- P527(X,Y)\t2", "field `score`: expected a share from 0 to 1, found `2`"),
        ] {
            let message = read(&format!("P6(X,Y) <- P527(X,Y)\n{line}\n")).unwrap_err().to_string();
            assert!(message.contains(":2: ") && message.contains(expected), "{line}: {message}");
        }
    }
}
